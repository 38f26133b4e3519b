#include "backends/shm/collectives/reduce.hpp"

#include "backends/shm/collectives/exchange.hpp"

#include <optional>

namespace ddp::shm {
namespace {

// The scratch's inputs into this rank's output, from `offset` on.
void reduce_inputs(const CollectiveContext& context, std::size_t offset, std::size_t bytes) {
    std::byte* const output = context.output() + offset;
    backends::reduce(context.group.scratch.inputs, {&output, 1}, bytes / context.element_bytes,
                     context.reduction(), context.output_store);
}

// A rank's slot holds one piece for each other rank.
struct ReduceScatter {
    CollectiveContext& context;
    GroupState& group = context.group;
    std::size_t piece = piece_bytes(group);
    // Of the program's calls, whose parts are even, none.
    std::optional<PartTable> uneven = context.call.parts
                                          ? std::optional(parts_of(context, &backends::Parts::send))
                                          : std::nullopt;

    Part part(std::size_t rank) const {
        const std::size_t bytes = context.call.bytes();
        return uneven ? (*uneven)[rank] : Part{rank * bytes, bytes};
    }
    std::size_t largest_bytes() const {
        return uneven ? uneven->largest_bytes() : context.call.bytes();
    }
    std::size_t total_bytes() const {
        return uneven ? uneven->total_bytes() : group.ranks * context.call.bytes();
    }
    std::size_t chunks() const { return chunks_of(largest_bytes(), piece); }
    void stage(std::size_t chunk) const {
        std::byte* const slot = context.slot(group.rank, chunk);
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            if (peer == group.rank) continue;
            const Part theirs = part(peer);
            const ChunkSlice slice = ChunkSlice::of(chunk, theirs.bytes, piece);
            context.copy_to_slot(slot + piece_index(group.rank, peer) * piece,
                                 context.input() + theirs.offset + slice.offset, slice.bytes);
        }
    }
    void receive(std::size_t chunk) const {
        const Part own = part(group.rank);
        const ChunkSlice slice = ChunkSlice::of(chunk, own.bytes, piece);
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            group.scratch.inputs[peer] =
                peer == group.rank
                    ? context.input() + own.offset + slice.offset
                    : context.slot(peer, slice.index) + piece_index(peer, group.rank) * piece;
        }
        reduce_inputs(context, slice.offset, slice.bytes);
    }
    void direct() const {
        const Part own = part(group.rank);
        find_inputs(context, {own.offset, own.bytes});
        reduce_inputs(context, 0, own.bytes);
    }
};

struct Reduce : RootedSteps {
    void stage(std::size_t chunk) const {
        if (!is_root) stage_input(chunk);
    }
    void receive(std::size_t chunk) const {
        if (!is_root) return;
        const ChunkSlice slice = ChunkSlice::of(chunk, bytes, piece);
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            group.scratch.inputs[peer] = peer == group.rank ? context.input() + slice.offset
                                                            : context.slot(peer, slice.index);
        }
        reduce_inputs(context, slice.offset, slice.bytes);
    }
    void direct() const {
        if (!is_root) return;
        find_inputs(context, {0, bytes});
        reduce_inputs(context, 0, bytes);
    }
};

}  // namespace

void reduce_scatter(CollectiveContext& context) {
    ReduceScatter steps{context};
    const GroupState& group = context.group;
    const Part own = steps.part(group.rank);
    if (group.ranks == 2) context.color_slots(steps.largest_bytes(), steps.piece);
    context.choose_output_store(own.bytes, context.output() == context.input() + own.offset);
    context.copy_size = steps.largest_bytes();
    exchange(context, Role::both, {steps.total_bytes(), 0, 0}, steps);
}

void reduce(CollectiveContext& context) {
    Reduce steps{{context}};
    context.color_slots(steps.bytes, steps.piece);
    context.choose_output_store(steps.bytes, context.output() == context.input());
    exchange(context, steps.is_root ? Role::receiver : Role::sender, {steps.bytes, 0, 0}, steps);
}

}  // namespace ddp::shm
