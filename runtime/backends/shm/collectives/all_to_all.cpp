#include "backends/shm/collectives/all_to_all.hpp"

#include "backends/shm/collectives/exchange.hpp"

namespace ddp::shm {
namespace {

struct AllToAll {
    CollectiveContext& context;
    GroupState& group = context.group;
    std::size_t piece = piece_bytes(group);
    PartTable sent = parts_of(context, &backends::Parts::send);         // by receiver
    PartTable received = parts_of(context, &backends::Parts::receive);  // by sender

    // The largest part of any pair of ranks.
    std::size_t chunks() const {
        const bool uneven = context.call.parts != nullptr;
        return chunks_of(uneven ? group.peer_offsets.largest_part : context.call.bytes(), piece);
    }
    void stage(std::size_t chunk) const {
        std::byte* const slot = context.slot(group.rank, chunk);
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            if (peer == group.rank) continue;
            const ChunkSlice slice = ChunkSlice::of(chunk, sent[peer].bytes, piece);
            context.copy_to_slot(slot + piece_index(group.rank, peer) * piece,
                                 context.input() + sent[peer].offset + slice.offset, slice.bytes);
        }
    }
    void receive(std::size_t chunk) const {
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            const Part& part = received[peer];
            const ChunkSlice slice = ChunkSlice::of(chunk, part.bytes, piece);
            const std::byte* const from =
                peer == group.rank
                    ? context.input() + sent[group.rank].offset + slice.offset
                    : context.slot(peer, slice.index) + piece_index(peer, group.rank) * piece;
            context.copy_to_output(context.output() + part.offset + slice.offset, from,
                                   slice.bytes);
        }
    }
    // All send, so senders push all.
    void direct() const {
        for (std::size_t peer = 0; peer < group.ranks; ++peer) {
            const Part& out = sent[peer];
            copy_between(context, {group.rank, peer, out.bytes, out.offset, offset_in_output(peer)},
                         out.bytes);
            if (peer == group.rank) continue;
            const Part& in = received[peer];
            copy_between(context, {peer, group.rank, in.bytes, offset_in_input(peer), in.offset},
                         in.bytes);
        }
    }

private:
    // Where this rank's part begins in that rank's output, and in its input.
    std::size_t offset_in_output(std::size_t rank) const {
        if (rank == group.rank) return received[rank].offset;
        return context.call.parts ? group.peer_offsets.in_output[rank]
                                  : group.rank * context.call.bytes();
    }
    std::size_t offset_in_input(std::size_t rank) const {
        return context.call.parts ? group.peer_offsets.in_input[rank]
                                  : group.rank * context.call.bytes();
    }
};

}  // namespace

void all_to_all(CollectiveContext& context) {
    AllToAll steps{context};
    const GroupState& group = context.group;
    const std::size_t input = steps.sent.total_bytes();
    const std::size_t output = steps.received.total_bytes();
    if (group.ranks == 2 && !context.call.parts) {
        context.color_slots(context.call.bytes(), steps.piece);
    }
    context.choose_output_store(output, context.output() == context.input());
    context.copy_size = steps.sent.largest_bytes();
    exchange(context, Role::both, {input, output, input / group.ranks}, steps);
}

}  // namespace ddp::shm
