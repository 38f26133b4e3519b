#include "backends/shm/call/op_descriptor.hpp"

#include "backends/call_header.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace ddp::shm {
namespace {

using backends::Call;

Signature signature_of(const Call& call, std::uint64_t sequence, BufferRegistration buffers) {
    const backends::CallHeader header = backends::header_of(call, sequence);
    Signature signature{};
    signature.elements = header.elements;
    signature.sequence = static_cast<std::uint32_t>(sequence);
    signature.parts = static_cast<std::uint32_t>(header.parts >> 32 ^ header.parts);
    if (header.parts != 0) signature.parts |= 1;  // never "even"
    signature.root = static_cast<std::uint16_t>(header.root);
    signature.kind = header.kind;
    signature.dtype = header.dtype;
    signature.op = header.op;
    signature.buffers = buffers;
    return signature;
}

backends::CallHeader header_of(const DescriptorLine& line) {
    const Signature& signature = line.signature;
    backends::CallHeader header{};
    header.sequence = signature.sequence;
    header.elements = signature.elements;
    header.parts = signature.parts;
    header.root = signature.root;
    header.kind = signature.kind;
    header.dtype = signature.dtype;
    header.op = signature.op;
    header.source = line.source;
    return header;
}

bool same_call(const DescriptorLine& one, const DescriptorLine& other) {
    const Signature& a = one.signature;
    const Signature& b = other.signature;
    return a.elements == b.elements && a.sequence == b.sequence && a.parts == b.parts &&
           a.root == b.root && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op &&
           one.source == other.source;
}

bool has_uneven_counts(const Call& call) { return call.parts && !call.parts->receive.empty(); }

// The counts of an uneven all_to_all that go from one rank to another.
struct RankPair {
    std::size_t sender, receiver;
};
struct Counts {
    std::uint64_t sent, expected;
};
[[noreturn]] void throw_different_counts(const CollectiveContext& context, const RankPair& pair,
                                         const Counts& counts) {
    Waiter& waiter = context.group.waiter;
    const int receiver = static_cast<int>(pair.receiver);
    waiter.abort(AbortReason::mismatch, receiver);
    throw UsageError("all_to_all, operation " + std::to_string(context.sequence) + ": " +
                     waiter.name(static_cast<int>(pair.sender)) + " sends " +
                     std::to_string(counts.sent) + " elements to " + waiter.name(receiver) +
                     ", which expects " + std::to_string(counts.expected));
}

// Every rank looks at the counts of all ranks, so that all of them throw. A peer's count is read
// once: what the call does with it later comes from here, and this rank's own from the call.
void compare_counts(const CollectiveContext& context) {
    GroupState& group = context.group;
    const backends::Parts& own = *context.call.parts;
    const std::size_t ranks = group.ranks;
    const std::size_t limit = PTRDIFF_MAX / context.element_bytes / ranks;
    PeerOffsets& offsets = group.peer_offsets;
    offsets.largest_part = 0;
    offsets.in_input.assign(ranks, 0);
    offsets.in_output.assign(ranks, 0);
    for (std::size_t from = 0; from < ranks; ++from) {
        const std::uint64_t* const sent =
            group.region->parts(static_cast<int>(from), context.sequence);
        for (std::size_t to = 0; to < ranks; ++to) {
            const std::uint64_t* const received =
                group.region->parts(static_cast<int>(to), context.sequence) + ranks;
            const std::uint64_t count = from == group.rank ? own.send[to] : sent[to];
            const std::uint64_t expected = to == group.rank ? own.receive[from] : received[from];
            if (count != expected || count > limit) {
                throw_different_counts(context, {from, to}, {count, expected});
            }
            const std::size_t bytes = count * context.element_bytes;
            offsets.largest_part = std::max(offsets.largest_part, bytes);
            if (to < group.rank) offsets.in_input[from] += bytes;
            if (from < group.rank) offsets.in_output[to] += bytes;
        }
    }
}

// At once: a peer that is done may publish its next call while this rank copies its last chunk.
void read_factors(const CollectiveContext& context) {
    for (std::size_t peer = 0; peer < context.group.ranks; ++peer) {
        context.group.scratch.factors[peer] = descriptor_of(context, peer).details.factor;
    }
}

}  // namespace

void fill_descriptor(CollectiveContext& context, BufferRegistration buffers) {
    GroupState& group = context.group;
    const Call& call = context.call;
    OpDescriptor& own = group.barrier.next_descriptor();
    if (call.op.kind == ReduceOp::premul_sum) own.details.factor = call.op.factor;
    if (has_uneven_counts(call)) {
        const int rank = static_cast<int>(group.rank);
        std::uint64_t* const table = group.region->parts(rank, context.sequence);
        std::copy_n(call.parts->send.data(), group.ranks, table);
        std::copy_n(call.parts->receive.data(), group.ranks, table + group.ranks);
    }
    // Last, since peers poll this line.
    own.line.source = call.source;
    own.line.signature = signature_of(call, context.sequence, buffers);
}

void begin(CollectiveContext& context) {
    context.first_phase = context.group.barrier.arrive_and_wait(context.deadline, context);
    for (std::size_t i = 0; i < context.prefetched.size(); i += cache_line) {
        __builtin_prefetch(context.prefetched.data() + i);
    }
    compare_calls(context);
    if (context.call.op.kind == ReduceOp::premul_sum) read_factors(context);
}

void compare_calls(const CollectiveContext& context) {
    const GroupState& group = context.group;
    const DescriptorLine& first = descriptor_of(context, 0).line;
    for (std::size_t peer = 1; peer < group.ranks; ++peer) {
        const DescriptorLine& line = descriptor_of(context, peer).line;
        if (same_call(first, line)) continue;
        Waiter& waiter = context.group.waiter;
        waiter.abort(AbortReason::mismatch, static_cast<int>(peer));
        backends::CallHeader first_header = header_of(first);
        first_header.sequence = context.sequence;
        const backends::CallHeader other = header_of(line);
        throw UsageError(backends::describe_difference(
            {waiter.job_rank(0), first_header}, {waiter.job_rank(static_cast<int>(peer)), other}));
    }
    if (has_uneven_counts(context.call)) compare_counts(context);
}

}  // namespace ddp::shm
