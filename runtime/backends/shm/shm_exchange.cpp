// Collectives other than all_reduce: one phase a chunk. Who gives stages; who takes copies or
// reduces, from slots or, where no rank stages, from the givers' memory.
#include "backends/shm/shm_running.hpp"

#include <cstring>
#include <numeric>

namespace ddp::shm {
namespace {

std::size_t round_down(std::size_t value, std::size_t multiple) {
    return value / multiple * multiple;
}

using backends::Store;

// Two copies for one reading.
void copy_twice(std::byte* first, std::byte* second, const std::byte* from, std::size_t bytes) {
    std::byte* const outputs[] = {first, second};
    backends::reduce({&from, 1}, outputs, bytes, {DType::uint8, ReduceOp::bit_or, {}});
}

// A whole part at once: the C library's way does not fetch what it overwrites.
void copy_whole(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) std::memmove(to, from, bytes);
}

std::size_t chunks_of(std::size_t bytes, std::size_t piece) { return (bytes + piece - 1) / piece; }

// Which of the pieces in `from`'s slot is for `to`: there is none for itself.
std::size_t place(std::size_t from, std::size_t to) { return to < from ? to : to - 1; }

std::vector<std::size_t> offsets_of(const std::vector<std::size_t>& counts) {
    std::vector<std::size_t> offsets(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
    return offsets;
}

}  // namespace

// `stage(i)` puts chunk i of what this rank gives into its slot, `take(i)` gets what it wants of
// chunk i; `chunks()` is their number, the same on all ranks, known once the calls are compared.
template <class Stage, class Take, class Chunks>
void ShmBackend::exchange(Running& running, Role role, const Chunks& chunks, const Stage& stage,
                          const Take& take) {
    const MemoryKind memory = role == Role::takes ? MemoryKind::none : memory_of_input(running);
    announce(running, memory);
    if (role == Role::gives && running.is_small && chunks() <= 1) {
        stage(0);
        take(0);  // what it gives to itself
        ++chunk_;
        return leave_unsettled(running);
    }
    if (memory == MemoryKind::ordinary) stage(0);
    begin(running);
    switch (path_of(running)) {
        case Path::mapped:
        case Path::read:
            running.direct = true;
            take(0);
            barrier_.arrive_and_wait(running.deadline, running);
            return;
        case Path::staged_after_all:
            if (memory == MemoryKind::shared || memory == MemoryKind::readable) stage(0);
            barrier_.arrive_and_wait(running.deadline, running);
            break;
        case Path::staged:
            break;
    }
    const std::size_t count = std::max<std::size_t>(chunks(), 1);
    std::uint32_t staged = running.first_phase;
    for (std::size_t chunk = 0; chunk < count; ++chunk) {
        if (chunk > 0) barrier_.wait(staged, running.deadline, running);
        if (chunk + 1 < count) {
            stage(chunk + 1);
            staged = barrier_.arrive();
        }
        take(chunk);
    }
    chunk_ += count;
}

// Where this rank finds the window of a peer's block: at `in_slot` of its slot, or at `in_memory`
// of its input, which is mapped here.
const std::byte* ShmBackend::source(const Running& running, std::size_t peer, const Window& window,
                                    std::size_t in_slot, std::size_t in_memory) const {
    const int rank = static_cast<int>(peer);
    if (!running.direct) return region_->slot(rank, chunk_ + window.index) + in_slot;
    const CallDetails& details = barrier_.announcement(rank, running.first_phase).details;
    return allocations_.address(rank, details.input) + in_memory + window.first;
}

// Copies that window, also where the peer's input is not mapped here.
void ShmBackend::take_from(const Running& running, std::size_t peer, const Window& window,
                           std::size_t in_slot, std::size_t in_memory, std::byte* to) {
    const int rank = static_cast<int>(peer);
    const Location input = barrier_.announcement(rank, running.first_phase).details.input;
    if (running.direct && input.allocation == 0) {
        const std::uint64_t address = input.offset + in_memory + window.first;
        return reader_.read(rank, address, to, window.count, running);
    }
    backends::copy(to, source(running, peer, window, in_slot, in_memory), window.count);
}

void ShmBackend::broadcast(Running& running) {
    const std::size_t bytes = running.call.bytes();
    const std::size_t piece = tuning_.chunk_bytes;
    const bool gives = rank_ == running.root();
    const auto stage = [&](std::size_t chunk) {
        if (!gives) return;
        const Window window = Window::of(running, chunk, bytes, piece);
        backends::copy(region_->slot(static_cast<int>(rank_), chunk_ + chunk),
                       running.input() + window.first, window.count, running.staging);
    };
    const auto take = [&](std::size_t chunk) {
        if (gives) return;
        const Window window = Window::of(running, chunk, bytes, piece);
        backends::copy(running.output() + window.first,
                       source(running, running.root(), window, 0, 0), window.count);
    };
    exchange(
        running, gives ? Role::gives : Role::takes, [&] { return chunks_of(bytes, piece); }, stage,
        take);
    if (gives) backends::copy(running.output(), running.input(), bytes);
}

// gather; all_gather, even or not, when `everywhere`.
void ShmBackend::gather(Running& running, bool everywhere) {
    const std::size_t size = running.element_bytes;
    const std::size_t piece = tuning_.chunk_bytes;
    std::vector<std::size_t> bytes(ranks_, running.call.bytes());
    if (running.call.parts) {
        for (std::size_t r = 0; r < ranks_; ++r) bytes[r] = running.call.parts->send[r] * size;
    }
    const std::vector<std::size_t> offsets = offsets_of(bytes);
    const bool takes = everywhere || rank_ == running.root();
    const bool gives = everywhere || rank_ != running.root();
    // This rank's part of the output is written while its input is read for the others.
    std::byte* const own = takes ? running.output() + offsets[rank_] : nullptr;
    const bool own_is_in_place = own == running.input() || !takes;
    const auto stage = [&](std::size_t chunk) {
        if (!gives) return;
        const Window window = Window::of(running, chunk, bytes[rank_], piece);
        std::byte* const slot = region_->slot(static_cast<int>(rank_), chunk_ + chunk);
        if (running.staging == Store::cached && !own_is_in_place) {
            copy_twice(slot, own + window.first, running.input() + window.first, window.count);
        } else {
            backends::copy(slot, running.input() + window.first, window.count, running.staging);
        }
    };
    const auto take = [&](std::size_t chunk) {
        if (!takes) return;
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            const Window window = Window::of(running, chunk, bytes[peer], piece);
            const bool staged = gives && !running.direct && running.staging == Store::cached;
            if (peer == rank_ && staged) continue;  // written with the slot
            const std::byte* const from = peer == rank_ ? running.input() + window.first
                                                        : source(running, peer, window, 0, 0);
            backends::copy(running.output() + offsets[peer] + window.first, from, window.count);
        }
    };
    const std::size_t most = *std::max_element(bytes.begin(), bytes.end());
    exchange(
        running,
        everywhere ? Role::both
        : takes    ? Role::takes
                   : Role::gives,
        [&] { return chunks_of(most, piece); }, stage, take);
}

// The window of each other rank's part of the input, as a piece of this rank's slot.
void ShmBackend::stage_parts(const Running& running, const Window& window, std::size_t piece) {
    std::byte* const slot = region_->slot(static_cast<int>(rank_), chunk_ + window.index);
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_) continue;
        backends::copy(slot + place(rank_, peer) * piece,
                       running.input() + peer * running.call.bytes() + window.first, window.count,
                       running.staging);
    }
}

// The root's slot holds one piece for each other rank.
void ShmBackend::scatter(Running& running) {
    const std::size_t bytes = running.call.bytes();
    const std::size_t piece = round_down(tuning_.chunk_bytes / (ranks_ - 1), cache_line);
    const bool gives = rank_ == running.root();
    const auto stage = [&](std::size_t chunk) {
        if (gives) stage_parts(running, Window::of(running, chunk, bytes, piece), piece);
    };
    const auto take = [&](std::size_t chunk) {
        const Window window = Window::of(running, chunk, bytes, piece);
        std::byte* const to = running.output() + window.first;
        if (gives) {
            backends::copy(to, running.input() + rank_ * bytes + window.first, window.count);
        } else {
            take_from(running, running.root(), window, place(running.root(), rank_) * piece,
                      rank_ * bytes, to);
        }
    };
    exchange(
        running, gives ? Role::gives : Role::takes, [&] { return chunks_of(bytes, piece); }, stage,
        take);
}

// Even or not. Each rank's slot holds one piece for each other rank.
void ShmBackend::all_to_all(Running& running) {
    const std::size_t size = running.element_bytes;
    const std::size_t piece = round_down(tuning_.chunk_bytes / (ranks_ - 1), cache_line);
    std::vector<std::size_t> sent(ranks_, running.call.bytes());
    std::vector<std::size_t> received = sent;
    if (running.call.parts) {
        for (std::size_t r = 0; r < ranks_; ++r) {
            sent[r] = running.call.parts->send[r] * size;
            received[r] = running.call.parts->receive[r] * size;
        }
    }
    const std::vector<std::size_t> from_offsets = offsets_of(sent);
    const std::vector<std::size_t> to_offsets = offsets_of(received);
    const auto stage = [&](std::size_t chunk) {
        std::byte* const slot = region_->slot(static_cast<int>(rank_), chunk_ + chunk);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            if (peer == rank_) continue;
            const Window window = Window::of(running, chunk, sent[peer], piece);
            backends::copy(slot + place(rank_, peer) * piece,
                           running.input() + from_offsets[peer] + window.first, window.count,
                           running.staging);
        }
    };
    // Where in the peer's input this rank's part begins.
    const auto offset_at = [&](std::size_t peer) {
        if (!running.call.parts) return rank_ * running.call.bytes();
        const std::uint64_t* const counts =
            region_->parts(static_cast<int>(peer), running.sequence);
        return std::accumulate(counts, counts + rank_, std::size_t{0}) * size;
    };
    const auto take = [&](std::size_t chunk) {
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            const Window window = Window::of(running, chunk, received[peer], piece);
            std::byte* const to = running.output() + to_offsets[peer] + window.first;
            const std::byte* const own = running.input() + from_offsets[rank_] + window.first;
            if (peer == rank_ && running.direct) {
                copy_whole(to, own, window.count);
            } else if (peer == rank_) {
                backends::copy(to, own, window.count);
            } else {
                take_from(running, peer, window, place(peer, rank_) * piece,
                          running.direct ? offset_at(peer) : 0, to);
            }
        }
    };
    const auto chunks = [&] {
        std::size_t most = running.call.elements;
        for (std::size_t r = 0; running.call.parts && r < ranks_; ++r) {
            const std::uint64_t* const counts =
                region_->parts(static_cast<int>(r), running.sequence);
            most = std::max<std::size_t>(most, *std::max_element(counts, counts + ranks_));
        }
        return chunks_of(most * size, piece);
    };
    exchange(running, Role::both, chunks, stage, take);
}

void ShmBackend::reduce_scatter(Running& running) {
    const std::size_t bytes = running.call.bytes();
    const std::size_t piece = round_down(tuning_.chunk_bytes / (ranks_ - 1), cache_line);
    const auto stage = [&](std::size_t chunk) {
        stage_parts(running, Window::of(running, chunk, bytes, piece), piece);
    };
    const auto take = [&](std::size_t chunk) {
        const Window window = Window::of(running, chunk, bytes, piece);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            inputs_[peer] = peer == rank_ ? running.input() + rank_ * bytes + window.first
                                          : source(running, peer, window,
                                                   place(peer, rank_) * piece, rank_ * bytes);
        }
        std::byte* const output = running.output() + window.first;
        backends::reduce(inputs_, {&output, 1}, window.count / running.element_bytes,
                         reduction(running));
    };
    exchange(
        running, Role::both, [&] { return chunks_of(bytes, piece); }, stage, take);
}

void ShmBackend::reduce(Running& running) {
    const std::size_t bytes = running.call.bytes();
    const std::size_t piece = tuning_.chunk_bytes;
    const bool takes = rank_ == running.root();
    const auto stage = [&](std::size_t chunk) {
        if (takes) return;
        const Window window = Window::of(running, chunk, bytes, piece);
        backends::copy(region_->slot(static_cast<int>(rank_), chunk_ + chunk),
                       running.input() + window.first, window.count, running.staging);
    };
    const auto take = [&](std::size_t chunk) {
        if (!takes) return;
        const Window window = Window::of(running, chunk, bytes, piece);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            inputs_[peer] = peer == rank_ ? running.input() + window.first
                                          : source(running, peer, window, 0, 0);
        }
        std::byte* const output = running.output() + window.first;
        backends::reduce(inputs_, {&output, 1}, window.count / running.element_bytes,
                         reduction(running));
    };
    exchange(
        running, takes ? Role::takes : Role::gives, [&] { return chunks_of(bytes, piece); }, stage,
        take);
}

}  // namespace ddp::shm
