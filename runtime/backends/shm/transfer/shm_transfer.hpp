// Point-to-point transfers through the channels of a SharedRegion (protocol.md).
#pragma once

#include "backends/backend.hpp"
#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/transfer/peer_memory.hpp"
#include "backends/shm/transfer/slot_stores.hpp"
#include "backends/shm/wait/waiter.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace ddp::shm {

// This rank's ends of its channels: the transfers of each go one after another.
class TransferState {
public:
    TransferState(SharedRegion& region, int rank, Waiter& waiter, PeerMemory& peers);

    std::unique_ptr<backends::PendingTransfer> start(const backends::Transfer& transfer);

private:
    friend class ShmTransfer;
    struct End {
        std::atomic<std::uint64_t> started{0};   // transfers
        std::atomic<std::uint64_t> finished{0};  // of them
        std::uint64_t chunks = 0;                // moved; by who advances
        std::uint64_t read = 0;                  // of a send, by the peer: as last seen
        // So many chunks the peer must have read before the next: it reads memory of this rank's.
        std::uint64_t until_read = 0;

        bool is_open() const {
            return started.load(std::memory_order_seq_cst) >
                   finished.load(std::memory_order_acquire);
        }
    };
    End& end(const backends::Transfer& transfer);
    // Whether any transfer that has been started could move. The thread that advances.
    bool any_ready();
    std::vector<int> open_peers() const;  // those with a transfer under way
    // There is room in the channel, and nothing that the peer still reads.
    bool can_send(End& end, int peer) const;
    bool can_receive(const End& end, int peer) const;

    SharedRegion& region_;
    int rank_;
    Waiter& waiter_;
    PeerMemory& peers_;
    SlotStores stores_;       // by who advances
    std::vector<End> sends_;  // by peer
    std::vector<End> receives_;
};

}  // namespace ddp::shm
