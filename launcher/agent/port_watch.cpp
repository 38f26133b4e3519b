#include "launcher/agent/port_watch.hpp"

#include <ddp/error.hpp>

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>

namespace ddp::launcher {
namespace {

constexpr long short_ns = 20'000'000;
constexpr long long_ns = 500'000'000;
constexpr int short_looks = 500;  // ten seconds: longer than most programs take to get there

void set_timer(int timer, long nanoseconds) {
    const itimerspec time{{0, nanoseconds}, {0, nanoseconds}};
    if (::timerfd_settime(timer, 0, &time, nullptr) != 0) throw SystemError("timerfd", errno);
}

}  // namespace

PortWatch::PortWatch(std::uint16_t port, store::SocketOwners::At at)
    : port_(port), at_(at), timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!timer_) throw SystemError("timerfd_create", errno);
    set_timer(timer_.get(), short_ns);
}

void PortWatch::look() {
    std::uint64_t ticks = 0;
    if (::read(timer_.get(), &ticks, sizeof ticks) < 0) return;
    if (++looks_ == short_looks) set_timer(timer_.get(), long_ns);
    look_now();
}

void PortWatch::look_now() {
    const auto owners = owners_.listeners_on(port_, at_);
    for (const store::SocketOwner& owner : owners) {
        if (check_.trusts(owner)) continue;
        problem_ = "port " + std::to_string(port_) +
                   ", which rank 0 is to serve, was taken by uid " + std::to_string(owner.user) +
                   ", so that ranks would meet there; the job is ended; with --agent-store=on the "
                   "launcher holds the port itself, and --store-peers=any does not look";
        return;
    }
    if (!owners.empty()) set_timer(timer_.get(), 0);
}

}  // namespace ddp::launcher
