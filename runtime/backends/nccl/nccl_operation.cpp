#include "backends/nccl/nccl_operation.hpp"

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
    for (CUevent_st* const event : events_) api_.destroy_event(event);
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

bool GroupEnd::set(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (error_) return false;
    error_ = std::move(error);
    set_.store(true, std::memory_order_release);
    return true;
}

void GroupEnd::settle() noexcept {
    const std::lock_guard lock(mutex_);
    settled_ = true;
    changed_.notify_all();
}

// Who ends the group sees to it that this ends, or that the process does.
void GroupEnd::wait_until_settled() const noexcept {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return settled_; });
}

void GroupEnd::raise() const {
    wait_until_settled();
    std::rethrow_exception(error_);
}

Cargo::Cargo(std::span<const backends::Call> calls, std::uint64_t sequence_)
    : first(calls.front()), count(calls.size()), sequence(sequence_) {
    for (const backends::Call& call : calls) {
        bytes += call.bytes();
        if (!call.parts) continue;
        for (const std::size_t elements : call.parts->send) {
            bytes += elements * size_of(call.dtype);
        }
    }
}

Cargo::Cargo(std::span<const backends::Transfer> transfers, std::uint64_t sequence_)
    : first(transfers.front()), count(transfers.size()), sequence(sequence_) {
    for (const backends::Transfer& transfer : transfers) bytes += transfer.bytes;
}

std::string Cargo::describe() const {
    std::string text = std::visit([](const auto& one) { return backends::describe(one); }, first);
    if (count > 1) text += " and " + std::to_string(count - 1) + " more";
    text += ", operation " + std::to_string(sequence) + " (" + std::to_string(bytes) + " bytes)";
    const auto* const call = std::get_if<backends::Call>(&first);
    const CallSite site =
        call != nullptr ? call->site_in_program() : std::get<backends::Transfer>(first).site;
    return site.line() == 0 ? text : text + " at " + backends::describe(site);
}

Flight::~Flight() { events_->give_back(event_); }

Flight::State Flight::look() {
    State now = state();
    if (now != State::flying || !events_->api().is_done(event_)) return now;
    state_.compare_exchange_strong(now, State::landed, std::memory_order_acq_rel);
    return state();
}

void Flight::lose() noexcept {
    State flying = State::flying;
    state_.compare_exchange_strong(flying, State::lost, std::memory_order_acq_rel);
}

// The default stream is the group's device's, whatever the calling thread's current one is.
void Flight::let_wait(Stream stream) {
    const device::CurrentGpu current(events_->api(), events_->device());
    events_->api().wait(stream, event_);
}

std::string Flight::describe_with_age() const {
    const auto age =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - deadline_.start());
    return describe() + ", since " + base::to_string(age);
}

bool FlightOperation::is_completed() const noexcept {
    try {
        return flight_->look() != Flight::State::flying;
    } catch (const Error&) {  // of the device: the watchdog finds it too, and ends the group
        return false;
    }
}

void FlightOperation::wait() {
    const auto begin = Clock::now();
    while (!is_completed()) {
        if (Clock::now() - begin < yield_time) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(pause);
        }
    }
    if (flight_->state() == Flight::State::lost) end_->raise();
}

void FlightOperation::wait(Stream stream) {
    const Flight::State now = flight_->state();
    if (now == Flight::State::lost) end_->raise();
    if (now == Flight::State::flying) flight_->let_wait(stream);
}

}  // namespace ddp::nccl
