// InFlightOperation: what was launched, its end event, how it ends. And what all operations of a
// group share: events, and the error that ended the group, or all that end with it (GroupFamily).
//
//   running -> completed     its event has come
//         +--> aborted       the group was ended while it ran, or it could not be launched
//
// It is running from before its launch on: NCCL and CUDA may keep the thread that launches. The
// first poll after the event makes it completed. Invariant: when a group ends, its operations are
// made aborted before NCCL is, so that an event that comes because of NCCL's abort is never taken
// for a result.
#pragma once

#include "backends/backend.hpp"
#include "backends/device_backend.hpp"
#include "base/deadline.hpp"
#include "contract/launch_recorder.hpp"
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

// Events are made once and recorded again and again, also what a capture has recorded: nothing is
// asked about one between its taking and its record. The pool outlives the group when operations
// do.
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

// The error that ended the group, if one has. First it is set: nothing is launched any more; then
// the group is aborted: NCCL is out of the tensors' memory.
class GroupAbort {
public:
    bool set(std::exception_ptr error) noexcept;  // the first wins: true
    bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }
    void mark_aborted() noexcept;
    void wait_until_aborted() const noexcept;
    [[noreturn]] void raise() const;  // once aborted

private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::exception_ptr error_;
    std::atomic<bool> set_ = false;
    bool aborted_ = false;
};

// What an operation is, for messages.
struct OperationInfo {
    OperationInfo(std::span<const backends::Call> calls, std::uint64_t sequence_);  // at least one
    OperationInfo(std::span<const backends::Transfer> transfers, std::uint64_t sequence_);
    explicit OperationInfo(std::string what) : first(std::move(what)) {}
    // "all_reduce of 128 float32 (sum), operation 7 (512 bytes) at train.cpp:42"
    std::string describe() const;

    std::variant<backends::Call, backends::Transfer, std::string> first;
    std::size_t count = 1;
    std::size_t bytes = 0;
    std::uint64_t sequence = 0;
};

class InFlightOperation : public backends::DeviceOperation {
public:
    // In a graph it runs once for each launch of that, of which the host knows nothing: it stays
    // running, and its event is for streams that are captured with it.
    enum class Place { on_stream, in_graph };
    // About to be launched; the device is current.
    InFlightOperation(std::shared_ptr<EventPool> events, std::shared_ptr<GroupAbort> group_abort,
                      OperationInfo info, const base::Deadline& deadline, Place place)
        : events_(std::move(events)),
          group_abort_(std::move(group_abort)),
          event_(events_->take()),
          info_(std::move(info)),
          deadline_(deadline),
          place_(place) {}
    ~InFlightOperation() override;
    InFlightOperation(const InFlightOperation&) = delete;
    InFlightOperation& operator=(const InFlightOperation&) = delete;

    // Its end is to be recorded. Before it is launched.
    void record_in(std::shared_ptr<contract::LaunchRecorder> recorder,
                   const contract::LaunchRecorder::Launch& launch) {
        recorder_ = std::move(recorder);
        recorded_ = launch;
    }
    // The watchdog's thread, of the oldest: its record is to stay.
    void keep_record() noexcept;
    void record_end(Stream stream);  // the last of it has been launched on the stream
    bool is_launched() const noexcept { return launched_.load(std::memory_order_acquire); }
    enum class State { running, completed, aborted };
    State poll() const;  // never blocks; throws what the device says
    State state() const noexcept { return state_.load(std::memory_order_acquire); }
    void abort() noexcept;  // unless it has completed

    bool is_completed() const noexcept override;
    void wait() override;
    void wait(Stream stream) override;

    bool is_in_graph() const noexcept { return place_ == Place::in_graph; }
    // Nobody can see it end.
    bool is_out_of_sight() const noexcept { return is_in_graph() && is_launched(); }
    const base::Deadline& deadline() const { return deadline_; }
    std::string describe() const { return info_.describe(); }
    // For the dump: with the time since it was launched.
    std::string describe_with_age() const;

private:
    std::shared_ptr<EventPool> events_;
    std::shared_ptr<GroupAbort> group_abort_;
    CUevent_st* event_;
    OperationInfo info_;
    base::Deadline deadline_;
    Place place_;
    std::shared_ptr<contract::LaunchRecorder> recorder_;
    mutable std::mutex record_mutex_;
    contract::LaunchRecorder::Launch recorded_;
    std::atomic<bool> launched_ = false;
    mutable std::atomic<State> state_ = State::running;
};

}  // namespace ddp::nccl
