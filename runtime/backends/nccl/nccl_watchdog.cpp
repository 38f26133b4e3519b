#include "backends/nccl/nccl_watchdog.hpp"

#include "base/process/background_thread.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <chrono>

namespace ddp::nccl {
namespace {

using namespace std::chrono_literals;

using Clock = base::Deadline::Clock;

constexpr auto tick = 20ms;
// After which the second thread looks, too.
constexpr auto longest_look = 200ms;
constexpr auto between_looks_after = 100ms;
// Looks at nothing after which the thread sleeps until it is woken, which costs a launch something.
constexpr int idle_ticks = 10;

}  // namespace

Watchdog::Watchdog(Probes probes, EndGroup end_group)
    : probes_(std::move(probes)),
      end_group_(std::move(end_group)),
      thread_(base::start_background_thread([this] { run(); })) {
    try {
        second_ = base::start_background_thread([this] { look_after_run(); });
    } catch (...) {
        stop();
        throw;
    }
}

Watchdog::~Watchdog() { stop(); }

void Watchdog::stop() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    {
        const std::lock_guard lock(mutex_);
        ended_ = true;
        changed_.notify_all();
    }
    if (second_.joinable()) second_.join();
}

void Watchdog::watch(std::shared_ptr<InFlightOperation> operation) {
    const std::lock_guard lock(mutex_);
    operations_.push_back(std::move(operation));
    if (asleep_) changed_.notify_all();
}

std::vector<std::string> Watchdog::abort_all() noexcept {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> aborted;
    for (const auto& operation : operations_) {
        operation->abort();
        if (operation->state() == InFlightOperation::State::aborted)
            aborted.push_back(operation->describe_with_age());
    }
    operations_.clear();
    changed_.notify_all();
    return aborted;
}

void Watchdog::wait_until_completed() noexcept {
    std::unique_lock lock(mutex_);
    while (!operations_.empty()) {
        try {
            drop_ended(lock);
        } catch (const Error&) {  // the thread ends the group
        }
        if (!operations_.empty()) changed_.wait_for(lock, 1ms);
    }
}

void Watchdog::drop_ended(std::unique_lock<std::mutex>& lock) {
    while (!operations_.empty()) {
        const std::shared_ptr<InFlightOperation> oldest = operations_.front();
        lock.unlock();
        std::exception_ptr error;
        InFlightOperation::State state{};
        try {
            state = oldest->poll();
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        if (error) std::rethrow_exception(error);
        const bool is_running = state == InFlightOperation::State::running;
        if (is_running && !oldest->is_out_of_sight()) return;
        if (!operations_.empty() && operations_.front() == oldest) operations_.pop_front();
    }
}

// While CUDA keeps the first thread waiting, a peer's death and a deadline can be seen without it;
// and the end of the group may be what lets CUDA go on.
void Watchdog::look_after_run() noexcept {
    std::unique_lock lock(mutex_);
    while (!ended_) {
        changed_.wait(lock, [this] { return ended_ || !asleep_; });
        changed_.wait_for(lock, between_looks_after, [this] { return ended_; });
        const Clock::time_point since{Clock::duration(looks_since_.load())};
        const bool is_late = since != Clock::time_point{} && Clock::now() - since > longest_look;
        if (!is_late || operations_.empty()) continue;
        const std::optional<Failure> failure = diagnose(lock);
        if (!failure || operations_.empty()) continue;
        lock.unlock();
        end_group_(failure->error, failure->finder);
        lock.lock();
    }
}

void Watchdog::run() noexcept {
    note_look(true);
    try {
        if (probes_.use_device) probes_.use_device();
    } catch (const Error&) {  // the GPU is lost: the first question says so
    }
    note_look(false);
    std::unique_lock lock(mutex_);
    int idle = 0;
    while (!stopping_) {
        if (idle > idle_ticks) {
            asleep_ = true;
            changed_.wait(lock, [this] { return stopping_ || !operations_.empty(); });
            asleep_ = false;
            changed_.notify_all();  // the second thread
        }
        changed_.wait_for(lock, tick, [this] { return stopping_; });
        std::optional<Failure> failure;
        note_look(true);
        try {
            drop_ended(lock);
        } catch (const Error&) {  // of the device
            failure = Failure{std::current_exception(), Finder::this_rank};
        }
        note_look(false);
        idle = operations_.empty() ? idle + 1 : 0;
        if (!operations_.empty()) operations_.front()->keep_record();
        if (!failure && !operations_.empty()) failure = diagnose(lock);
        if (operations_.empty()) {
            reset_grace();
        } else if (failure) {
            lock.unlock();
            end_group_(failure->error, failure->finder);
            lock.lock();
        }
    }
}

void Watchdog::note_look(bool begins) {
    looks_since_ = begins ? Clock::now().time_since_epoch().count() : 0;
}

void Watchdog::reset_grace() {
    grace_.reset();
    first_trouble_ = nullptr;
    during_.clear();
}

std::optional<Watchdog::Failure> Watchdog::diagnose(std::unique_lock<std::mutex>& lock) {
    const std::shared_ptr<InFlightOperation> oldest = operations_.front();
    const auto found = std::ranges::find_if(
        operations_, [](const auto& operation) { return operation->deadline().passed(); });
    const std::shared_ptr<InFlightOperation> late = found != operations_.end() ? *found : nullptr;
    const std::string what = oldest->describe();
    lock.unlock();
    const std::exception_ptr trouble = probes_.find_trouble(what);
    const std::exception_ptr async_error = probes_.find_async_error(what);
    lock.lock();
    if (trouble || async_error) {
        if (!grace_) grace_ = base::Deadline::after(peer_grace);
        // An operation that ends nevertheless is not the one that the peer missed.
        if (trouble && during_ != what) {
            first_trouble_ = trouble;
            during_ = what;
        }
        if (!grace_->passed()) return std::nullopt;
        // Of a peer's death NCCL sees a closed connection; the CPU half knows whose.
        if (first_trouble_) return Failure{first_trouble_, Finder::other_rank};
        return Failure{async_error, Finder::this_rank};
    }
    reset_grace();
    if (late == nullptr) return std::nullopt;
    return Failure{
        std::make_exception_ptr(TimeoutError(
            "nccl: " + late->describe() +
            (late->is_launched() ? " did not end within " : " was not launched within ") +
            base::to_string(late->deadline().timeout()) + " on " + probes_.name +
            "; is another rank stopped, or at another operation?")),
        Finder::this_rank};
}

}  // namespace ddp::nccl
