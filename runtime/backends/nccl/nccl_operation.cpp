#include "backends/nccl/nccl_operation.hpp"

#include "backends/call_header.hpp"
#include "base/deadline.hpp"
#include "tensor/device/current_gpu.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

namespace ddp::nccl {
namespace {

using namespace std::chrono_literals;
using Clock = base::Deadline::Clock;

// A wait of the host: operations of small tensors are done within it.
constexpr auto yield_time = 200us;
constexpr auto pause = 50us;

}  // namespace

EventPool::~EventPool() {
    device::give_back_on(api_, device_, [this] {
        for (CUevent_st* const event : events_) api_.destroy_event(event);
    });
}

CUevent_st* EventPool::take() {
    {
        const std::lock_guard lock(mutex_);
        if (!events_.empty()) {
            CUevent_st* const event = events_.back();
            events_.pop_back();
            return event;
        }
    }
    return api_.make_event();
}

void EventPool::give_back(CUevent_st* event) noexcept {
    const std::lock_guard lock(mutex_);
    try {
        events_.push_back(event);
    } catch (const std::bad_alloc&) {
        api_.destroy_event(event);
    }
}

bool GroupAbort::set(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (error_) return false;
    error_ = std::move(error);
    set_.store(true, std::memory_order_release);
    return true;
}

void GroupAbort::mark_aborted() noexcept {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
}

// The thread that ends the group sees to it that this wait ends, or that the process does.
void GroupAbort::wait_until_aborted() const noexcept {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return aborted_; });
}

void GroupAbort::raise() const {
    wait_until_aborted();
    std::rethrow_exception(error_);
}

OperationInfo::OperationInfo(std::span<const backends::Call> calls, std::uint64_t sequence_)
    : first(calls.front()), count(calls.size()), sequence(sequence_) {
    for (const backends::Call& call : calls) {
        bytes += call.bytes();
        if (!call.parts) continue;
        for (const std::size_t elements : call.parts->send) {
            bytes += elements * size_of(call.dtype);
        }
    }
}

OperationInfo::OperationInfo(std::span<const backends::Transfer> transfers, std::uint64_t sequence_)
    : first(transfers.front()), count(transfers.size()), sequence(sequence_) {
    for (const backends::Transfer& transfer : transfers) bytes += transfer.bytes;
}

std::string OperationInfo::describe() const {
    if (const auto* const what = std::get_if<std::string>(&first)) return *what;
    const auto* const call = std::get_if<backends::Call>(&first);
    const auto* const transfer = std::get_if<backends::Transfer>(&first);
    std::string text = call != nullptr ? backends::describe(*call) : backends::describe(*transfer);
    if (count > 1) text += " and " + std::to_string(count - 1) + " more";
    text += ", operation " + std::to_string(sequence) + " (" + std::to_string(bytes) + " bytes)";
    const CallSite site = call != nullptr ? call->site_in_program() : transfer->site;
    return site.line() == 0 ? text : text + " at " + backends::describe(site);
}

InFlightOperation::~InFlightOperation() { events_->give_back(event_); }

void InFlightOperation::record_end(Stream stream) {
    events_->api().record(event_, stream);
    launched_.store(true, std::memory_order_release);
}

InFlightOperation::State InFlightOperation::poll() const {
    State now = state();
    if (now != State::running || !is_launched() || is_in_graph()) return now;
    {
        const device::CurrentGpu current(events_->api(), events_->device());
        if (!events_->api().is_done(event_)) return now;
    }
    const bool is_first =
        state_.compare_exchange_strong(now, State::completed, std::memory_order_acq_rel);
    if (is_first && recorder_) {
        const std::lock_guard lock(record_mutex_);
        recorder_->ended(recorded_);
    }
    return state();
}

void InFlightOperation::keep_record() noexcept {
    if (!is_launched() || !recorder_) return;
    const auto* const call = std::get_if<backends::Call>(&info_.first);
    if (call == nullptr) return;
    const std::lock_guard lock(record_mutex_);
    if (state() != State::running) return;
    recorder_->keep(recorded_, backends::signature_of(*call), call->site_in_program(),
                    deadline_.start());
}

void InFlightOperation::abort() noexcept {
    State running = State::running;
    const bool is_first =
        state_.compare_exchange_strong(running, State::aborted, std::memory_order_acq_rel);
    if (is_first && is_launched() && recorder_) recorder_->aborted(recorded_);
}

std::string InFlightOperation::describe_with_age() const {
    const auto age =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - deadline_.start());
    return describe() + ", since " + base::to_string(age);
}

bool InFlightOperation::is_completed() const noexcept {
    try {
        return poll() != State::running;
    } catch (const Error&) {  // of the device: the watchdog finds it too, and ends the group
        return false;
    }
}

void InFlightOperation::wait() {
    if (is_in_graph()) {
        throw UsageError("nccl: " + describe() +
                         " is captured: a stream waits for it, wait(stream); the host waits for "
                         "the stream on which the graph is launched");
    }
    const auto begin = Clock::now();
    while (!is_completed()) {
        if (Clock::now() - begin < yield_time) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(pause);
        }
    }
    if (state() == State::aborted) group_abort_->raise();
}

void InFlightOperation::wait(Stream stream) {
    const State now = state();
    if (now == State::aborted) group_abort_->raise();
    if (now == State::completed) return;
    // The default stream is the group's device's, whatever the calling thread's current one is.
    const device::CurrentGpu current(events_->api(), events_->device());
    events_->api().wait(stream, event_);
}

}  // namespace ddp::nccl
