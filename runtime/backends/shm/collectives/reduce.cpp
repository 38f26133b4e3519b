#include "backends/shm/collectives/reduce.hpp"

#include "backends/shm/collectives/exchange.hpp"

#include <utility>

namespace ddp::shm {
namespace {

// The scratch's inputs into this rank's output, from `offset` on.
void reduce_inputs(const CollectiveContext& context, std::size_t offset, std::size_t bytes) {
    std::byte* const output = context.output() + offset;
    backends::reduce(context.group.scratch.inputs, {&output, 1}, bytes / context.element_bytes,
                     context.reduction(), context.output_store);
}

// A PartTable of even parts that needs no memory: of all calls of the program.
struct EvenParts {
    std::size_t ranks, bytes;

    Part operator[](std::size_t rank) const { return {rank * bytes, bytes}; }
    std::size_t total_bytes() const { return ranks * bytes; }
    std::size_t largest_bytes() const { return bytes; }
};

// A rank's slot holds one piece for each other rank.
template <class Parts>
struct ReduceScatter {
    CollectiveContext& context;
    Parts parts;
    GroupState& group = context.group;
    Part own = parts[group.rank];
    std::size_t piece = piece_bytes(group);

    std::size_t chunks() const { return chunks_of(parts.largest_bytes(), piece); }
    void stage(std::size_t chunk) const {
        std::byte* const slot = context.slot(group.rank, chunk);
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            if (peer == group.rank) continue;
            const Part theirs = parts[peer];
            const ChunkSlice slice = ChunkSlice::of(chunk, theirs.bytes, piece);
            context.copy_to_slot(slot + piece_index(group.rank, peer) * piece,
                                 context.input() + theirs.offset + slice.offset, slice.bytes);
        }
    }
    void receive(std::size_t chunk) const {
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
        find_inputs(context, {own.offset, own.bytes});
        reduce_inputs(context, 0, own.bytes);
    }
};

template <class Parts>
void reduce_scatter_in(CollectiveContext& context, Parts parts) {
    ReduceScatter<Parts> steps{context, std::move(parts)};
    const std::size_t largest = steps.parts.largest_bytes();
    const Part own = steps.own;
    if (context.group.ranks == 2) context.color_slots(largest, steps.piece);
    context.choose_output_store(own.bytes, context.output() == context.input() + own.offset);
    context.copy_size = largest;
    exchange(context, Role::both, {steps.parts.total_bytes(), 0, 0}, steps);
}

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
    const backends::Call& call = context.call;
    if (call.parts) return reduce_scatter_in(context, parts_of(context, &backends::Parts::send));
    reduce_scatter_in(context, EvenParts{context.group.ranks, call.bytes()});
}

void reduce(CollectiveContext& context) {
    Reduce steps{{context}};
    context.color_slots(steps.bytes, steps.piece);
    context.choose_output_store(steps.bytes, context.output() == context.input());
    exchange(context, steps.is_root ? Role::receiver : Role::sender, {steps.bytes, 0, 0}, steps);
}

}  // namespace ddp::shm
