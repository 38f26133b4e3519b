// Buckets that a reducer could send before any gradient of a backward has come, as this rank does
// not use them. A rank that does use them sends them after whatever its program starts until then;
// here they wait for the next call of the same thread, so that the order is the same. Where nothing
// is held that is a look at a counter, while a group for each reducer would cost a rendezvous and
// memory: docs/distributed_data_parallel.md has both measured.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ddp::process_group {

// Of all reducers of a group.
class HeldCalls {
public:
    bool any() const noexcept { return count_.load(std::memory_order_acquire) > 0; }
    // Starts what this thread holds, in the order in which it was held.
    void release() { release({}); }

private:
    friend class HeldCallsOfReducer;
    struct Held {
        const void* owner;
        std::uint64_t turn;
        std::thread::id thread;
        bool is_silent;
        std::function<void()> start;
    };
    struct Which {
        bool silent_ones_only = false;
        std::uint64_t before_turn = UINT64_MAX;
    };

    void release(const Which& which) {
        if (any()) start_held(which);
    }
    void add(Held&& held);
    bool remove(const void* owner) noexcept;
    void start_held(const Which& which);

    std::atomic<std::uint64_t> turns_{0};
    std::recursive_mutex mutex_;  // what is started looks in here again
    std::vector<Held> held_;
    std::atomic<std::size_t> count_{0};
    bool is_starting_ = false;
};

// Of one.
class HeldCallsOfReducer {
public:
    explicit HeldCallsOfReducer(std::shared_ptr<HeldCalls> all) : all_(std::move(all)) {}
    ~HeldCallsOfReducer() { take_back(); }
    HeldCallsOfReducer(const HeldCallsOfReducer&) = delete;
    HeldCallsOfReducer& operator=(const HeldCallsOfReducer&) = delete;

    // A backward begins.
    void take_turn() { turn_ = ++all_->turns_; }
    // For the calling thread. `is_silent`: no gradient of this backward will come. `start` throws
    // nothing.
    void hold(bool is_silent, std::function<void()> start) {
        all_->add({this, turn_, std::this_thread::get_id(), is_silent, std::move(start)});
    }
    // Whether there was anything to start, which is the caller's task then. Nothing is being
    // started when this returns.
    bool take_back() noexcept { return all_->any() && all_->remove(this); }
    // What silent reducers hold, as no gradient will send it: before a bucket of this one where
    // their turn came before...
    void release_earlier() { all_->release({true, turn_}); }
    // ... and once this one has sent all of its buckets, the rest.
    void release_silent() { all_->release({.silent_ones_only = true}); }

private:
    std::shared_ptr<HeldCalls> all_;
    std::uint64_t turn_ = 0;
};

}  // namespace ddp::process_group
