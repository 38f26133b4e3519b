// A bucket whose parameters this rank does not use is complete at once, but another rank sends it
// only in its own backward, behind collectives that the program starts before. To keep one order,
// this rank holds such a bucket until the same thread starts its next collective. Where nothing
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
        std::uint64_t number;  // of the owner's backward, among those of all reducers of the group
        std::thread::id thread;
        bool has_no_gradients;
        std::function<void()> start;
    };
    struct Which {
        bool without_gradients_only = false;
        std::uint64_t before_number = UINT64_MAX;
    };

    void release(const Which& which) {
        if (any()) start_held(which);
    }
    void add(Held&& held);
    bool remove(const void* owner) noexcept;
    void start_held(const Which& which);

    std::atomic<std::uint64_t> backwards_{0};
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
    void start_backward() { number_ = ++all_->backwards_; }
    // For the calling thread. `has_no_gradients`: none of this backward will come. `start` throws
    // nothing.
    void hold(bool has_no_gradients, std::function<void()> start) {
        all_->add({this, number_, std::this_thread::get_id(), has_no_gradients, std::move(start)});
    }
    // Whether there was anything to start, which is the caller's task then. Nothing is being
    // started when this returns.
    bool take_back() noexcept { return all_->any() && all_->remove(this); }
    // Before this reducer sends a bucket: starts the held buckets of reducers that get no gradient,
    // of backwards that began earlier than its own.
    void release_earlier() { all_->release({true, number_}); }
    // After its last bucket: starts all others of such reducers.
    void release_without_gradients() { all_->release({.without_gradients_only = true}); }

private:
    std::shared_ptr<HeldCalls> all_;
    std::uint64_t number_ = 0;
};

}  // namespace ddp::process_group
