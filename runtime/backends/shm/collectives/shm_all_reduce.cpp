// The paths of all_reduce: one phase, zero copy, staged.
#include "backends/shm/collectives/shm_running.hpp"

#include <ddp/error.hpp>

#include <cstring>

namespace ddp::shm {

void ShmBackend::all_reduce(Running& running) {
    const std::size_t bytes = running.call.bytes();
    if (bytes <= tuning_.one_phase_bytes) return all_reduce_in_one_phase(running);
    const std::size_t part = bytes / ranks_;
    const bool by_address = part <= tuning_.direct_reduction_bytes_max;
    Offer offer = offer_memory(running, Role::both, {bytes, bytes, by_address ? part : 0});
    if (offer.output == MemoryKind::none) offer.input = MemoryKind::ordinary;
    // Slots of an even chunk and the next are neighbours.
    const bool as_one = bytes <= 2 * tuning_.chunk_bytes && chunk_ % 2 == 0;
    running.slots = as_one ? 2 : 1;
    running.chunk_bytes = as_one ? 2 * tuning_.chunk_bytes : tuning_.pipelined_bytes;
    running.choose_places(bytes);
    running.rotate(bytes, tuning_.chunk_bytes);
    running.deliver(bytes, running.output() == running.input());
    if (offer.input == MemoryKind::ordinary) stage_shares(running, 0);
    announce(running, offer);
    begin(running);
    switch (path_of(running)) {
        case Path::direct:
            return all_reduce_direct(running);
        case Path::staged_after_all:
            if (offer.input != MemoryKind::ordinary) stage_shares(running, 0);
            barrier_.arrive_and_wait(running.deadline, running);
            break;
        case Path::staged:
            break;
    }
    all_reduce_staged(running);
}

void ShmBackend::all_reduce_in_one_phase(Running& running) {
    const std::size_t bytes = running.call.bytes();
    const bool in_line = bytes <= inline_bytes;
    if (!in_line) {
        running.rotate(bytes, tuning_.chunk_bytes);
        std::memcpy(running.slot(rank_, 0), running.input(), bytes);
    }
    announce(running, {});
    if (in_line && bytes > 0) {
        std::memcpy(barrier_.next_announcement().line.data, running.input(), bytes);
    }
    begin(running);
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        const int rank = static_cast<int>(peer);
        inputs_[peer] = in_line ? barrier_.announcement(rank, running.first_phase).line.data
                                : running.slot(peer, 0);
    }
    std::byte* const output = running.output();
    backends::reduce(inputs_, {&output, 1}, running.call.elements, reduction(running));
    if (!in_line) ++chunk_;
}

// Each rank reduces its share of the elements and writes it to all ranks. Where that is by address
// it goes in blocks, which lie in this rank's slots meanwhile: nobody reads those now.
void ShmBackend::all_reduce_direct(Running& running) {
    const Range mine = share(running.call.elements, running.element_bytes, rank_);
    std::size_t block = mine.end - mine.begin;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        const bool is_mapped = announced(running, peer).details.input.allocation != 0;
        if (!is_mapped && peer != rank_) block = std::min(block, scratch() / running.element_bytes);
    }
    for (std::size_t first = mine.begin; first < mine.end; first += block) {
        reduce_block(running, {first, std::min(first + block, mine.end)});
    }
    require_all_stayed(running);
    barrier_.arrive_and_wait(running.deadline, running);
}

// Bytes of this rank's slots for each rank.
std::size_t ShmBackend::scratch() const {
    return slots_a_rank * tuning_.chunk_bytes / ranks_ / cache_line * cache_line;
}

void ShmBackend::reduce_block(const Running& running, Range block) {
    const std::size_t first = block.begin * running.element_bytes;
    const std::size_t bytes = (block.end - block.begin) * running.element_bytes;
    std::size_t mapped = 0;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        const int rank = static_cast<int>(peer);
        const CallDetails place = announced(running, peer).details;
        if (peer == rank_) {
            inputs_[peer] = running.input() + first;
            outputs_[mapped++] = running.output() + first;
            continue;
        }
        if (place.input.allocation != 0) {
            inputs_[peer] = allocations_.address(rank, place.input, {first, bytes});
        } else {
            // The block was cut for that, unless the announcement has changed since.
            if (bytes > scratch()) throw Error("shm: " + waiter_.name(rank) + " changed its call");
            std::byte* const read = region_->slot(static_cast<int>(rank_), 0) + peer * scratch();
            peers_.read(rank, place.input.offset + first, read, bytes, running);
            inputs_[peer] = read;
        }
        if (place.output.allocation == 0) continue;
        outputs_[mapped++] = allocations_.address(rank, place.output, {first, bytes});
    }
    backends::reduce(inputs_, std::span(outputs_).first(mapped), block.end - block.begin,
                     reduction(running));
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_ || announced(running, peer).details.output.allocation != 0) continue;
        write_to(running, peer, first, running.output() + first, bytes);
    }
}

// Chunk 0 has been staged and its phase waited for. The phase that tells that a chunk is reduced
// also tells that the next one is staged. The next call begins at an even number, so that its two
// chunks may go as one; at this one's where few places do.
void ShmBackend::all_reduce_staged(Running& running) {
    const std::size_t chunk_elements = running.chunk_bytes / running.element_bytes;
    const std::size_t chunks = (running.call.elements + chunk_elements - 1) / chunk_elements;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
        reduce_share(running, chunk);
        if (chunk + 1 < chunks) stage_shares(running, chunk + 1);
        barrier_.arrive_and_wait(running.deadline, running);
        copy_shares(running, chunk);
    }
    if (running.places == slots_a_rank / running.slots) chunk_ += running.slots * chunks;
    chunk_ += chunk_ % 2;
}

// Rank r's part of so many elements. Parts begin on cache lines, so that two ranks never write the
// same one.
ShmBackend::Range ShmBackend::share(std::size_t elements, std::size_t element_bytes,
                                    std::size_t rank) const {
    const std::size_t per_line = cache_line / element_bytes;
    const std::size_t lines = (elements + per_line - 1) / per_line;
    return {std::min(lines * rank / ranks_ * per_line, elements),
            std::min(lines * (rank + 1) / ranks_ * per_line, elements)};
}

namespace {

// A chunk of the tensor, in elements.
struct Chunk {
    std::size_t first, count;
};
Chunk chunk_of(std::size_t elements, std::size_t chunk_elements, std::size_t index) {
    const std::size_t first = index * chunk_elements;
    return {first, std::min(chunk_elements, elements - first)};
}

}  // namespace

// What the others reduce; a rank's own share never leaves its memory.
void ShmBackend::stage_shares(const Running& running, std::size_t index) {
    const std::size_t size = running.element_bytes;
    const Chunk chunk = chunk_of(running.call.elements, running.chunk_bytes / size, index);
    const Range mine = share(chunk.count, size, rank_);
    const std::byte* const from = running.input() + chunk.first * size;
    std::byte* const to = running.slot(rank_, index);
    running.put(to, from, mine.begin * size);
    running.put(to + mine.end * size, from + mine.end * size, (chunk.count - mine.end) * size);
}

void ShmBackend::reduce_share(const Running& running, std::size_t index) {
    const std::size_t size = running.element_bytes;
    const Chunk chunk = chunk_of(running.call.elements, running.chunk_bytes / size, index);
    const Range mine = share(chunk.count, size, rank_);
    const std::size_t in_memory = (chunk.first + mine.begin) * size;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        inputs_[peer] = running.slot(peer, index) + mine.begin * size;
    }
    inputs_[rank_] = running.input() + in_memory;
    std::byte* const outputs[] = {running.output() + in_memory,
                                  running.result(index) + mine.begin * size};
    const backends::Store store = stores_.store_of(running.size, (mine.end - mine.begin) * size);
    backends::reduce(inputs_, outputs, mine.end - mine.begin, reduction(running), store);
}

void ShmBackend::copy_shares(const Running& running, std::size_t index) {
    const std::size_t size = running.element_bytes;
    const Chunk chunk = chunk_of(running.call.elements, running.chunk_bytes / size, index);
    const Range mine = share(chunk.count, size, rank_);
    std::byte* const to = running.output() + chunk.first * size;
    const std::byte* const from = running.result(index);
    running.take(to, from, mine.begin * size);
    running.take(to + mine.end * size, from + mine.end * size, (chunk.count - mine.end) * size);
}

}  // namespace ddp::shm
