#include "backends/shm/collectives/gather.hpp"

#include "backends/shm/collectives/exchange.hpp"

namespace ddp::shm {
namespace {

struct Gather {
    CollectiveContext& context;
    bool to_all;
    GroupState& group = context.group;
    PartTable parts = parts_of(context, &backends::Parts::send);
    std::size_t piece = group.tuning.staged.chunk_bytes;
    std::size_t own_bytes = parts[group.rank].bytes;
    bool receives = to_all || group.rank == context.root();
    bool sends = to_all || group.rank != context.root();
    // This rank's part of its output is written while its input is read for the others.
    bool copies_own = receives && own_output() != context.input();

    std::byte* own_output() const { return context.output() + parts[group.rank].offset; }
    std::size_t chunks() const { return chunks_of(parts.largest_bytes(), piece); }
    void stage(std::size_t chunk) const {
        if (!sends) return;
        const ChunkSlice slice = ChunkSlice::of(chunk, own_bytes, piece);
        const std::byte* const from = context.input() + slice.offset;
        const bool at_once = copies_own && context.output_store == backends::Store::cached;
        context.copy_to_slot(context.slot(group.rank, chunk), from, slice.bytes,
                             at_once ? own_output() + slice.offset : nullptr);
        if (!copies_own || at_once) return;
        context.copy_to_output(own_output() + slice.offset, from, slice.bytes);
    }
    void receive(std::size_t chunk) const {
        if (!receives) return;
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            const ChunkSlice slice = ChunkSlice::of(chunk, parts[peer].bytes, piece);
            if (peer == group.rank && sends) continue;  // written by stage()
            const std::byte* const from = peer == group.rank ? context.input() + slice.offset
                                                             : context.slot(peer, slice.index);
            context.copy_to_output(context.output() + parts[peer].offset + slice.offset, from,
                                   slice.bytes);
        }
    }
    // Senders push all: a receiver copies its own part meanwhile, or pushes too.
    void direct() const {
        const Part& own = parts[group.rank];
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            if (!to_all && peer != context.root()) continue;
            copy_between(context, {group.rank, peer, own.bytes, 0, own.offset}, own.bytes);
        }
        for (std::size_t peer = 0; receives && peer < group.ranks; ++peer) {
            if (peer == group.rank) continue;
            const Part& part = parts[peer];
            copy_between(context, {peer, group.rank, part.bytes, 0, part.offset}, part.bytes);
        }
    }
    Role role() const {
        if (to_all) return Role::both;
        return receives ? Role::receiver : Role::sender;
    }
};

void run(CollectiveContext& context, bool to_all) {
    Gather steps{context, to_all};
    const GroupState& group = context.group;
    context.color_slots(steps.parts.largest_bytes(), steps.piece);
    context.choose_output_store(steps.parts.total_bytes(), false);
    context.copy_size = steps.parts.largest_bytes();
    if (steps.receives && group.ranks == 2) {
        const std::size_t peer = 1 - group.rank;
        context.prefetch_slot(peer, 0, steps.parts[peer].bytes);
    }
    exchange(context, steps.role(), {steps.own_bytes, steps.parts.total_bytes(), steps.own_bytes},
             steps);
}

}  // namespace

void gather(CollectiveContext& context) { run(context, false); }
void all_gather(CollectiveContext& context) { run(context, true); }

}  // namespace ddp::shm
