// Whose events the agent's loop is told of: what is behind a tag of its poller.
#pragma once

#include "launcher/process/poller.hpp"

#include <cstddef>
#include <cstdint>

namespace ddp::launcher {

enum class Source : std::uint32_t {
    channel,
    signals,
    logs,
    store,
    port,
    hosts,
    pipes,
    input,
    door,
    metrics,
    worker
};

constexpr Poller::Tag tag_of(Source source, std::size_t index = 0) {
    return static_cast<Poller::Tag>(source) << 32 | index;
}
constexpr Source source_of(Poller::Tag tag) { return static_cast<Source>(tag >> 32); }
constexpr std::size_t index_of(Poller::Tag tag) { return tag & 0xffffffff; }

}  // namespace ddp::launcher
