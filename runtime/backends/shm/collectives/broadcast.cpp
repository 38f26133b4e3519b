#include "backends/shm/collectives/broadcast.hpp"

#include "backends/shm/collectives/exchange.hpp"

namespace ddp::shm {
namespace {

struct Broadcast : RootedSteps {
    void stage(std::size_t chunk) const {
        if (is_root) stage_input(chunk);
    }
    void receive(std::size_t chunk) const {
        if (is_root) return;
        const ChunkSlice slice = ChunkSlice::of(chunk, bytes, piece);
        context.copy_to_output(context.output() + slice.offset,
                               context.slot(context.root(), slice.index), slice.bytes);
    }
    // The root pushes as much as each other rank pulls.
    void direct() const {
        const std::size_t pushed = round_down(bytes / group.ranks, cache_line);
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            const bool takes_part = is_root ? peer != group.rank : peer == group.rank;
            if (takes_part) copy_between(context, {context.root(), peer, bytes, 0, 0}, pushed);
        }
    }
};

}  // namespace

void broadcast(CollectiveContext& context) {
    Broadcast steps{{context}};
    const std::size_t bytes = steps.bytes;
    context.color_slots(bytes, steps.piece);
    context.choose_output_store(bytes, false);
    if (!steps.is_root) context.prefetch_slot(context.root(), 0, bytes);
    exchange(context, steps.is_root ? Role::sender : Role::receiver, {bytes, bytes, bytes}, steps);
    if (steps.is_root) context.copy_to_output(context.output(), context.input(), bytes);
}

}  // namespace ddp::shm
