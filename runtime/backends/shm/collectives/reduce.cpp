#include "backends/shm/collectives/reduce.hpp"

#include "backends/shm/collectives/exchange.hpp"

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
    std::size_t bytes = context.call.bytes();
    std::size_t piece = piece_bytes(group);

    std::size_t chunks() const { return chunks_of(bytes, piece); }
    void stage(std::size_t chunk) const {
        stage_parts(context, ChunkSlice::of(chunk, bytes, piece), piece);
    }
    void receive(std::size_t chunk) const {
        const ChunkSlice slice = ChunkSlice::of(chunk, bytes, piece);
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            group.scratch.inputs[peer] =
                peer == group.rank
                    ? context.input() + group.rank * bytes + slice.offset
                    : context.slot(peer, slice.index) + piece_index(peer, group.rank) * piece;
        }
        reduce_inputs(context, slice.offset, slice.bytes);
    }
    void direct() const {
        find_inputs(context, {group.rank * bytes, bytes});
        reduce_inputs(context, 0, bytes);
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
    const std::size_t bytes = steps.bytes;
    if (group.ranks == 2) context.color_slots(bytes, steps.piece);
    const std::byte* const own_part = context.input() + group.rank * bytes;
    context.choose_output_store(bytes, context.output() == own_part);
    exchange(context, Role::both, {group.ranks * bytes, 0, 0}, steps);
}

void reduce(CollectiveContext& context) {
    Reduce steps{{context}};
    context.color_slots(steps.bytes, steps.piece);
    context.choose_output_store(steps.bytes, context.output() == context.input());
    exchange(context, steps.is_root ? Role::receiver : Role::sender, {steps.bytes, 0, 0}, steps);
}

}  // namespace ddp::shm
