#include "backends/nccl/nccl_watchdog.hpp"

#include "base/process/background_thread.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <chrono>

namespace ddp::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto tick = 20ms;
// Looks at nothing after which the thread sleeps until it is woken, which costs a launch something.
constexpr int idle_ticks = 10;

}  // namespace

Watchdog::Watchdog(Eyes eyes, Bark bark)
    : eyes_(std::move(eyes)),
      bark_(std::move(bark)),
      thread_(base::start_background_thread([this] { run(); })) {}

Watchdog::~Watchdog() { stop(); }

void Watchdog::stop() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

void Watchdog::watch(std::shared_ptr<Flight> flight) {
    const std::lock_guard lock(mutex_);
    flights_.push_back(std::move(flight));
    if (asleep_) changed_.notify_all();
}

std::vector<std::string> Watchdog::lose_all() noexcept {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> lost;
    for (const auto& flight : flights_) {
        try {
            flight->look();
        } catch (const Error&) {  // the device has failed: it does not land any more
        }
        flight->lose();
        if (flight->state() == Flight::State::lost) lost.push_back(flight->describe_with_age());
    }
    flights_.clear();
    changed_.notify_all();
    return lost;
}

void Watchdog::wait_until_landed() noexcept {
    std::unique_lock lock(mutex_);
    while (!flights_.empty()) {
        try {
            land();
        } catch (const Error&) {  // the thread barks
        }
        if (!flights_.empty()) changed_.wait_for(lock, 1ms);
    }
}

void Watchdog::land() {
    while (!flights_.empty() && flights_.front()->look() != Flight::State::flying) {
        flights_.pop_front();
    }
}

void Watchdog::run() noexcept {
    std::unique_lock lock(mutex_);
    int idle = 0;
    while (!stopping_) {
        if (idle > idle_ticks) {
            asleep_ = true;
            changed_.wait(lock, [this] { return stopping_ || !flights_.empty(); });
            asleep_ = false;
        }
        changed_.wait_for(lock, tick, [this] { return stopping_; });
        std::optional<Verdict> verdict;
        try {
            land();
            idle = flights_.empty() ? idle + 1 : 0;
            if (flights_.empty()) {
                be_patient_again();
                continue;
            }
            const std::shared_ptr<Flight> oldest = flights_.front();
            const auto late =
                std::find_if(flights_.begin(), flights_.end(),
                             [](const auto& flight) { return flight->deadline().passed(); });
            const std::shared_ptr<Flight> late_one = late != flights_.end() ? *late : nullptr;
            lock.unlock();
            verdict = judge(*oldest, late_one.get());
            lock.lock();
        } catch (const Error&) {  // of the device
            if (!lock) lock.lock();
            verdict = Verdict{std::current_exception(), Finder::this_rank};
        }
        if (!verdict || flights_.empty()) continue;
        lock.unlock();
        bark_(verdict->error, verdict->finder);
        lock.lock();
    }
}

void Watchdog::be_patient_again() {
    patience_.reset();
    first_trouble_ = nullptr;
    during_.clear();
}

std::optional<Watchdog::Verdict> Watchdog::judge(const Flight& oldest, const Flight* late) {
    const std::string what = oldest.describe();
    const std::exception_ptr trouble = eyes_.find_trouble(what);
    const std::exception_ptr async_error = eyes_.find_async_error(what);
    if (trouble || async_error) {
        if (!patience_) patience_ = base::Deadline::after(peer_grace);
        // An operation that ends nevertheless is not the one that the peer missed.
        if (trouble && during_ != what) {
            first_trouble_ = trouble;
            during_ = what;
        }
        if (!patience_->passed()) return std::nullopt;
        // Of a peer's death NCCL sees a closed connection; the CPU half knows whose.
        if (first_trouble_) return Verdict{first_trouble_, Finder::other_rank};
        return Verdict{async_error, Finder::this_rank};
    }
    be_patient_again();
    if (late == nullptr) return std::nullopt;
    return Verdict{std::make_exception_ptr(TimeoutError(
                       "nccl: " + late->describe() + " did not end within " +
                       base::to_string(late->deadline().timeout()) + " on " + eyes_.name +
                       "; is another rank stopped, or at another operation?")),
                   Finder::this_rank};
}

}  // namespace ddp::nccl
