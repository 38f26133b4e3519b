// An operation in flight: what was launched, its end event, how it ends. And what all operations of
// a group share: events, and what ended the group.
//
//   flying -> landed     its event has come
//        +--> lost       the group was ended while it flew
//
// Whoever looks first makes it landed. When a group ends its flights are made lost before NCCL is
// aborted, so that an event that comes because of the abort is never taken for a result.
#pragma once

#include "backends/backend.hpp"
#include "backends/device_backend.hpp"
#include "base/deadline.hpp"
#include "tensor/device/device_api.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace ddp::nccl {

// Events are made once and recorded again and again. Outlives the group when operations do.
class EventPool {
public:
    EventPool(device::DeviceApi& api, int device) : api_(api), device_(device) {}
    ~EventPool();
    EventPool(const EventPool&) = delete;
    EventPool& operator=(const EventPool&) = delete;

    CUevent_st* take();  // the device is current
    void give_back(CUevent_st* event) noexcept;
    device::DeviceApi& api() const { return api_; }
    int device() const { return device_; }

private:
    device::DeviceApi& api_;
    int device_;
    std::mutex mutex_;
    std::vector<CUevent_st*> events_;
};

// What ended the group, if something has. First it is ended: nothing is launched any more; then
// settled: NCCL is out of the tensors' memory.
class GroupEnd {
public:
    bool set(std::exception_ptr error) noexcept;  // the first wins: true
    bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }
    void settle() noexcept;
    void wait_until_settled() const noexcept;
    [[noreturn]] void raise() const;  // when settled

private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::exception_ptr error_;
    std::atomic<bool> set_ = false;
    bool settled_ = false;
};

// What an operation is, for messages.
struct Cargo {
    Cargo(std::span<const backends::Call> calls, std::uint64_t sequence_);  // at least one
    Cargo(std::span<const backends::Transfer> transfers, std::uint64_t sequence_);
    // "all_reduce of 128 float32 (sum), operation 7 (512 bytes) at train.cpp:42"
    std::string describe() const;

    std::variant<backends::Call, backends::Transfer> first;
    std::size_t count;
    std::size_t bytes = 0;
    std::uint64_t sequence;
};

class Flight {
public:
    // `end_event` is of the pool, recorded after the last of it.
    Flight(std::shared_ptr<EventPool> events, CUevent_st* end_event, Cargo cargo,
           const base::Deadline& deadline)
        : events_(std::move(events)),
          event_(end_event),
          cargo_(std::move(cargo)),
          deadline_(deadline) {}
    ~Flight();
    Flight(const Flight&) = delete;
    Flight& operator=(const Flight&) = delete;

    enum class State { flying, landed, lost };
    State look();  // never blocks; throws what the device says
    State state() const noexcept { return state_.load(std::memory_order_acquire); }
    void lose() noexcept;  // unless it has landed
    void let_wait(Stream stream);

    const base::Deadline& deadline() const { return deadline_; }
    std::string describe() const { return cargo_.describe(); }
    // For the dump: with the time since it was launched.
    std::string describe_with_age() const;

private:
    std::shared_ptr<EventPool> events_;
    CUevent_st* event_;
    Cargo cargo_;
    base::Deadline deadline_;
    std::atomic<State> state_ = State::flying;
};

class FlightOperation : public backends::DeviceOperation {
public:
    FlightOperation(std::shared_ptr<Flight> flight, std::shared_ptr<GroupEnd> end)
        : flight_(std::move(flight)), end_(std::move(end)) {}
    bool is_completed() const noexcept override;
    void wait() override;
    void wait(Stream stream) override;

private:
    std::shared_ptr<Flight> flight_;
    std::shared_ptr<GroupEnd> end_;
};

}  // namespace ddp::nccl
