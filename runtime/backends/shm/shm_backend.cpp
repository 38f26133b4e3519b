#include "backends/shm/shm_backend.hpp"

#include "backends/shm/reduce.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstring>

namespace ddp::shm {
namespace {

using backends::Call;
using backends::Collective;

// Below this one barrier is dearer than each rank reducing everything by itself.
constexpr std::size_t small_bytes = 16 * 1024;

CallHeader header_of(const Call& call, std::uint64_t sequence) {
    CallHeader header{};
    header.sequence = sequence;
    header.kind = static_cast<std::uint8_t>(call.kind);
    header.elements = call.elements;
    header.dtype = static_cast<std::uint8_t>(call.dtype);
    header.op = static_cast<std::uint8_t>(call.op);
    header.root = call.root;
    return header;
}

std::string describe(const CallHeader& header) {
    Call call;
    call.kind = static_cast<Collective>(header.kind);
    call.dtype = static_cast<DType>(header.dtype);
    call.op = static_cast<ReduceOp>(header.op);
    call.root = header.root;
    call.elements = header.elements;
    return backends::describe(call);
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

}  // namespace

struct ShmBackend::Step {
    const Call& call;
    std::uint64_t sequence;
    const base::Deadline& deadline;
    std::string what;  // for messages
    bool compared = false;

    const std::byte* input() const { return static_cast<const std::byte*>(call.input); }
    std::byte* output() const { return static_cast<std::byte*>(call.output); }
    std::size_t element_bytes() const { return size_of(call.dtype); }
};

ShmBackend::ShmBackend(std::shared_ptr<SharedRegion> region, int rank,
                       const std::atomic<std::uint32_t>* agent_abort)
    : region_(std::move(region)),
      rank_(rank),
      ranks_(static_cast<std::size_t>(region_->ranks())),
      barrier_(*region_, rank, agent_abort),
      inputs_(ranks_) {}

void ShmBackend::run(const Call& call, std::uint64_t sequence, const base::Deadline& deadline) {
    Step step{call, sequence, deadline,
              backends::describe(call) + ", operation " + std::to_string(sequence)};
    region_->line(rank_).calls[sequence % 2] = header_of(call, sequence);
    switch (call.kind) {
        case Collective::all_reduce:
            return call.bytes() <= std::min(small_bytes, region_->slot_bytes())
                       ? all_reduce_small(step)
                       : all_reduce(step);
        case Collective::broadcast:
            return broadcast(step);
        case Collective::all_gather:
            return all_gather(step);
        case Collective::reduce_scatter:
            return reduce_scatter(step);
        case Collective::barrier:
            return meet(step);
    }
}

// Every call begins with one barrier on every rank, whatever it is; that is where the ranks' ideas
// of it are compared, before any rank reads a byte.
void ShmBackend::meet(Step& step) {
    barrier_.arrive_and_wait(step.deadline, step.what);
    if (step.compared) return;
    compare_calls(step);
    step.compared = true;
}

void ShmBackend::compare_calls(const Step& step) {
    const std::size_t parity = step.sequence % 2;
    const CallHeader& first = region_->line(0).calls[parity];
    for (int peer = 1; peer < region_->ranks(); ++peer) {
        const CallHeader& other = region_->line(peer).calls[parity];
        if (other == first) continue;
        barrier_.abort(AbortReason::mismatch, peer);
        throw UsageError("operation " + std::to_string(step.sequence) +
                         " of the group differs between ranks: rank 0 called " + describe(first) +
                         ", rank " + std::to_string(peer) + " called " + describe(other) +
                         "; all ranks must call the same operations in the same order");
    }
}

void ShmBackend::all_reduce_small(Step& step) {
    const std::size_t bytes = step.call.bytes();
    copy_bytes(region_->slot(rank_, parity_), step.input(), bytes);
    meet(step);
    for (std::size_t r = 0; r < ranks_; ++r)
        inputs_[r] = region_->slot(static_cast<int>(r), parity_);
    reduce(inputs_, step.output(), step.call.elements, step.call.dtype, step.call.op);
    parity_ ^= 1;
}

// Each chunk: all publish theirs, each rank reduces its share of it, all copy the result.
void ShmBackend::all_reduce(Step& step) {
    const std::size_t size = step.element_bytes();
    const std::size_t chunk = region_->slot_bytes() / size;
    for (std::size_t first = 0; first < step.call.elements; first += chunk) {
        const std::size_t count = std::min(chunk, step.call.elements - first);
        copy_bytes(region_->slot(rank_, parity_), step.input() + first * size, count * size);
        meet(step);
        // Shares begin on cache lines, so that two ranks never write the same one.
        const std::size_t per_line = cache_line / size;
        const std::size_t lines = (count + per_line - 1) / per_line;
        const auto me = static_cast<std::size_t>(rank_);
        const std::size_t begin = std::min(lines * me / ranks_ * per_line, count);
        const std::size_t end = std::min(lines * (me + 1) / ranks_ * per_line, count);
        for (std::size_t r = 0; r < ranks_; ++r) {
            inputs_[r] = region_->slot(static_cast<int>(r), parity_) + begin * size;
        }
        std::byte* const result = region_->result(parity_);
        reduce(inputs_, result + begin * size, end - begin, step.call.dtype, step.call.op);
        meet(step);
        copy_bytes(step.output() + first * size, result, count * size);
        parity_ ^= 1;
    }
}

void ShmBackend::broadcast(Step& step) {
    const std::size_t bytes = step.call.bytes();
    const std::size_t chunk = region_->slot_bytes();
    const int root = step.call.root;
    std::size_t first = 0;
    do {
        const std::size_t count = std::min(chunk, bytes - first);
        if (rank_ == root) copy_bytes(region_->slot(root, parity_), step.input() + first, count);
        meet(step);
        if (rank_ != root) copy_bytes(step.output() + first, region_->slot(root, parity_), count);
        parity_ ^= 1;
        first += count;
    } while (first < bytes);
    if (rank_ == root) copy_bytes(step.output(), step.input(), bytes);
}

void ShmBackend::all_gather(Step& step) {
    const std::size_t bytes = step.call.bytes();
    const std::size_t chunk = region_->slot_bytes();
    std::size_t first = 0;
    do {
        const std::size_t count = std::min(chunk, bytes - first);
        copy_bytes(region_->slot(rank_, parity_), step.input() + first, count);
        meet(step);
        for (std::size_t r = 0; r < ranks_; ++r) {
            copy_bytes(step.output() + r * bytes + first,
                       region_->slot(static_cast<int>(r), parity_), count);
        }
        parity_ ^= 1;
        first += count;
    } while (first < bytes);
}

// A slot holds one piece for each rank; rank r reduces the r-th pieces of all slots.
void ShmBackend::reduce_scatter(Step& step) {
    const std::size_t size = step.element_bytes();
    const std::size_t part = step.call.bytes();
    const std::size_t piece = region_->slot_bytes() / ranks_ / cache_line * cache_line;
    std::size_t first = 0;
    do {
        const std::size_t count = std::min(piece, part - first);
        std::byte* const slot = region_->slot(rank_, parity_);
        for (std::size_t r = 0; r < ranks_; ++r) {
            copy_bytes(slot + r * piece, step.input() + r * part + first, count);
        }
        meet(step);
        for (std::size_t r = 0; r < ranks_; ++r) {
            inputs_[r] = region_->slot(static_cast<int>(r), parity_) +
                         static_cast<std::size_t>(rank_) * piece;
        }
        reduce(inputs_, step.output() + first, count / size, step.call.dtype, step.call.op);
        parity_ ^= 1;
        first += count;
    } while (first < part);
}

}  // namespace ddp::shm
