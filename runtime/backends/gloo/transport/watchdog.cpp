#include "backends/gloo/transport/watchdog.hpp"

#include "base/process/background_thread.hpp"

#include <utility>

namespace ddp::gloo {
namespace {

using namespace std::chrono_literals;

constexpr auto tick = 20ms;
constexpr auto never = std::chrono::milliseconds{std::chrono::hours{24 * 365}};
// Ticks without a wait after which the thread sleeps until there is one: a waker costs each
// collective more than a tick now and then.
constexpr int idle_ticks = 10;

}  // namespace

Watchdog::Watchdog(std::function<bool()> has_trouble)
    : has_trouble_(std::move(has_trouble)),
      thread_(base::start_background_thread([this] { run(); })) {}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

bool Watchdog::wait(::gloo::transport::UnboundBuffer& buffer, Direction direction,
                    const base::Deadline* deadline) {
    std::list<Wait>::iterator entry;
    {
        const std::lock_guard lock(mutex_);
        entry = waits_.insert(waits_.end(), {buffer, direction, deadline});
        if (asleep_) changed_.notify_all();
    }
    struct Removal {
        Watchdog& watchdog;
        std::list<Wait>::iterator entry;
        ~Removal() {
            const std::lock_guard lock(watchdog.mutex_);
            watchdog.waits_.erase(entry);
        }
    } const removal{*this, entry};
    return direction == Direction::send ? buffer.waitSend(never) : buffer.waitRecv(never);
}

void Watchdog::run() {
    std::unique_lock lock(mutex_);
    int idle = 0;
    while (!stopping_) {
        if (idle > idle_ticks) {
            asleep_ = true;
            changed_.wait(lock, [this] { return stopping_ || !waits_.empty(); });
            asleep_ = false;
        }
        changed_.wait_for(lock, tick, [this] { return stopping_; });
        idle = waits_.empty() ? idle + 1 : 0;
        if (waits_.empty()) continue;
        const bool trouble = has_trouble_();
        for (const Wait& wait : waits_) {
            const bool late = wait.deadline != nullptr && wait.deadline->passed();
            if (!trouble && !late) continue;
            if (wait.direction == Direction::send) wait.buffer.abortWaitSend();
            if (wait.direction == Direction::receive) wait.buffer.abortWaitRecv();
        }
    }
}

}  // namespace ddp::gloo
