// The operations, as what a stream runs: they move data through the region's mailboxes.
#pragma once

#include "standin_nccl/reduction.hpp"
#include "standin_nccl/region.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

namespace stand_in {

enum class Kind : std::uint32_t {
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather,
    scatter,
    send,
    receive,
};

struct Operation {
    Kind kind = Kind::all_reduce;
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::size_t count = 0;
    ncclDataType_t dtype = ncclFloat32;
    int root = 0;  // or the peer
    Reduction reduction = {};
    std::uint64_t number = 0;    // among the communicator's operations
    std::uint64_t sequence = 0;  // among its collectives

    bool is_transfer() const { return kind == Kind::send || kind == Kind::receive; }
};

// Waits more and more leisurely.
class Backoff {
public:
    void pause() {
        if (++pauses_ < 200) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds{pauses_ < 1000 ? 50 : 500});
        }
    }
    void reset() { pauses_ = 0; }

private:
    int pauses_ = 0;
};

// Where an operation runs. All of it ends early, with false, once `stopped` says so.
struct Place {
    Region* region = nullptr;
    int rank = 0;
    int ranks = 1;
    const std::atomic<bool>* stopped = nullptr;

    template <class Condition>
    bool wait_until(const Condition& condition) const {
        for (Backoff backoff; !condition();) {
            if (stopped->load()) return false;
            backoff.pause();
        }
        return true;
    }
    bool hang() const {
        return wait_until([] { return false; });
    }
};

bool run_collective(const Place& place, const Operation& operation);
// All of them side by side; those with one peer in their order.
bool run_transfers(const Place& place, std::span<const Operation> operations);

}  // namespace stand_in
