// The agent's end of its channel to the front, and that end's place in the agent's poller.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/process/poller.hpp"

#include <sys/epoll.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace ddp::launcher {

class FrontLink {
public:
    // Its events in `events`, which has to outlive it, have that tag.
    FrontLink(base::UniqueFd channel, Poller& events, Poller::Tag tag)
        : channel_(std::move(channel)), events_(events), tag_(tag) {
        events_.add(channel_.fd(), EPOLLIN, tag_);
    }

    Channel& channel() { return channel_; }
    bool is_open() const { return channel_.open(); }
    // Sends what can be sent, and has the poller tell when there is more to do.
    void keep_watched() {
        channel_.flush();
        const std::uint32_t wanted = channel_.queued_bytes() > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
        if (watched_ && !is_open()) {
            events_.remove(channel_.fd());  // its end would be news for ever
            watched_.reset();
        } else if (watched_ && *watched_ != wanted) {
            events_.change(channel_.fd(), wanted, tag_);
            watched_ = wanted;
        }
    }

private:
    Channel channel_;
    Poller& events_;
    Poller::Tag tag_;
    std::optional<std::uint32_t> watched_ = EPOLLIN;
};

}  // namespace ddp::launcher
