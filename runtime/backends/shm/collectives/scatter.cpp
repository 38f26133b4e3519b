#include "backends/shm/collectives/scatter.hpp"

#include "backends/shm/collectives/exchange.hpp"

namespace ddp::shm {
namespace {

struct Scatter {
    CollectiveContext& context;
    GroupState& group = context.group;
    std::size_t bytes = context.call.bytes();
    std::size_t piece = piece_bytes(group);
    bool is_root = group.rank == context.root();

    std::size_t chunks() const { return chunks_of(bytes, piece); }
    void stage(std::size_t chunk) const {
        if (is_root) stage_parts(context, ChunkSlice::of(chunk, bytes, piece), piece);
    }
    // Where in the root's slot this rank's piece begins. Not on the root.
    std::size_t own_piece() const { return piece_index(context.root(), group.rank) * piece; }
    void receive(std::size_t chunk) const {
        const ChunkSlice slice = ChunkSlice::of(chunk, bytes, piece);
        const std::byte* const from = is_root
                                          ? context.input() + group.rank * bytes + slice.offset
                                          : context.slot(context.root(), slice.index) + own_piece();
        context.copy_to_output(context.output() + slice.offset, from, slice.bytes);
    }
    // The root has its own part to copy, which is half of the work of a part for a peer.
    void direct() const {
        const std::size_t pushed = round_down(bytes / (2 * group.ranks), cache_line);
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            if (!is_root && peer != group.rank) continue;
            copy_between(context, {context.root(), peer, bytes, peer * bytes, 0}, pushed);
        }
    }
};

}  // namespace

void scatter(CollectiveContext& context) {
    Scatter steps{context};
    const GroupState& group = context.group;
    const std::size_t bytes = steps.bytes;
    if (group.ranks == 2) context.color_slots(bytes, steps.piece);
    context.choose_output_store(bytes, false);
    if (!steps.is_root) {
        context.prefetch_slot(context.root(), steps.own_piece(), std::min(bytes, steps.piece));
    }
    exchange(context, steps.is_root ? Role::sender : Role::receiver,
             {group.ranks * bytes, bytes, bytes}, steps);
}

}  // namespace ddp::shm
