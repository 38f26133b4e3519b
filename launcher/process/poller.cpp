// A thin cover over epoll: one vector of tags a wait.
#include "launcher/process/poller.hpp"

#include <ddp/error.hpp>

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace ddp::launcher {
namespace {

void control(int poller, int operation, int fd, epoll_event event) {
    if (::epoll_ctl(poller, operation, fd, &event) != 0) throw SystemError("epoll_ctl", errno);
}

int milliseconds_until(std::optional<Poller::Clock::time_point> wake_at) {
    using std::chrono::milliseconds;
    const milliseconds longest = std::chrono::hours{1};
    if (!wake_at) return static_cast<int>(longest.count());
    const auto left = std::chrono::ceil<milliseconds>(*wake_at - Poller::Clock::now());
    return static_cast<int>(std::clamp(left, milliseconds{0}, longest).count());
}

}  // namespace

Poller::Poller() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!fd_) throw SystemError("epoll_create1", errno);
}

void Poller::add(int fd, std::uint32_t events, Tag tag) {
    control(fd_.get(), EPOLL_CTL_ADD, fd, {events, {.u64 = tag}});
}

void Poller::change(int fd, std::uint32_t events, Tag tag) {
    control(fd_.get(), EPOLL_CTL_MOD, fd, {events, {.u64 = tag}});
}

void Poller::remove(int fd) { control(fd_.get(), EPOLL_CTL_DEL, fd, {}); }

std::vector<Poller::Tag> Poller::wait(std::optional<Clock::time_point> wake_at) {
    std::array<epoll_event, 256> events;
    const int count = ::epoll_wait(fd_.get(), events.data(), static_cast<int>(events.size()),
                                   milliseconds_until(wake_at));
    if (count < 0 && errno != EINTR) throw SystemError("epoll_wait", errno);
    std::vector<Tag> ready;
    ready.reserve(static_cast<std::size_t>(std::max(count, 0)));
    for (int i = 0; i < count; ++i) {
        const Tag tag = events[static_cast<std::size_t>(i)].data.u64;  // not aligned as others are
        ready.push_back(tag);
    }
    return ready;
}

}  // namespace ddp::launcher
