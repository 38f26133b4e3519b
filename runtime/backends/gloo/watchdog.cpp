#include "backends/gloo/watchdog.hpp"

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

Watch::Watch(std::function<bool()> is_trouble)
    : is_trouble_(std::move(is_trouble)),
      thread_(base::start_background_thread([this] { run(); })) {}

Watch::~Watch() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

bool Watch::wait(::gloo::transport::UnboundBuffer& buffer, Way way,
                 const base::Deadline* deadline) {
    std::list<Wait>::iterator entry;
    {
        const std::lock_guard lock(mutex_);
        entry = waits_.insert(waits_.end(), {buffer, way, deadline});
        if (asleep_) changed_.notify_all();
    }
    struct Removal {
        Watch& watch;
        std::list<Wait>::iterator entry;
        ~Removal() {
            const std::lock_guard lock(watch.mutex_);
            watch.waits_.erase(entry);
        }
    } const removal{*this, entry};
    return way == Way::send ? buffer.waitSend(never) : buffer.waitRecv(never);
}

void Watch::run() {
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
        const bool trouble = is_trouble_();
        for (const Wait& wait : waits_) {
            const bool late = wait.deadline != nullptr && wait.deadline->passed();
            if (!trouble && !late) continue;
            if (wait.way == Way::send) wait.buffer.abortWaitSend();
            if (wait.way == Way::receive) wait.buffer.abortWaitRecv();
        }
    }
}

}  // namespace ddp::gloo
