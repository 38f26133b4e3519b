// Point-to-point transfers through the channels of a SharedRegion (protocol.md): eager messages in
// chunks, large ones by rendezvous, which the receiver reads from the sender's memory. Invariant:
// the transfers of one channel run one after another, in the order in which they were started.
#pragma once

#include "backends/backend.hpp"
#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/transfer/chunk_places.hpp"
#include "backends/shm/transfer/peer_memory.hpp"
#include "backends/shm/transfer/slot_writer.hpp"
#include "backends/shm/wait/waiter.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace ddp::shm {

// This rank's ends of its channels.
class TransferState {
public:
    TransferState(SharedRegion& region, int rank, Waiter& waiter, PeerMemory& peers);

    std::unique_ptr<backends::PendingTransfer> start(const backends::Transfer& transfer);

private:
    friend class ShmTransfer;
    struct ChannelEnd {
        std::atomic<std::uint64_t> started{0};   // transfers
        std::atomic<std::uint64_t> finished{0};  // transfers
        std::uint64_t chunks = 0;                // moved; of the thread that advances
        std::uint64_t read = 0;                  // sender: the receiver's counter as last seen
        // Sender: the counter at which the receiver has read this rank's memory. No chunk is sent
        // before.
        std::uint64_t must_be_read = 0;

        bool is_open() const {
            return started.load(std::memory_order_seq_cst) >
                   finished.load(std::memory_order_acquire);
        }
    };
    ChannelEnd& end(const backends::Transfer& transfer);
    // Whether any transfer under way could move. Of the thread that advances.
    bool any_ready();
    std::vector<int> open_peers() const;  // those with a transfer under way
    // Whether the channel has room, and the receiver has read this rank's memory.
    bool can_send(ChannelEnd& end, int peer) const;
    bool can_receive(const ChannelEnd& end, int peer) const;

    SharedRegion& region_;
    int rank_;
    Waiter& waiter_;
    PeerMemory& peers_;
    SlotWriter slot_writer_;         // of the thread that advances
    std::vector<ChannelEnd> sends_;  // by peer
    std::vector<ChannelEnd> receives_;
    std::vector<ChunkPlaces> places_;  // by peer
};

}  // namespace ddp::shm
