// ServerLog: what a store's server says about its clients, at most one line a second of each level:
// strangers can cause as many lines as they like. It has no timer: its owner calls say_rest() at
// wakes_at().
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/log_limiter.hpp"

namespace ddp::store {

class ServerLog {
public:
    using Clock = base::LogLimiter::Clock;

    void say(base::LogLevel level, std::string line) {
        if (!base::log_enabled(level)) return;
        auto& limiter = level == base::LogLevel::debug ? debug_ : warnings_;
        if (const auto now = limiter.admit(std::move(line), Clock::now())) {
            base::log(level, "store", *now);
        }
    }
    // What was left out and whose second is over.
    void say_rest(Clock::time_point now) {
        if (const auto line = warnings_.overdue(now)) base::log_warn("store", *line);
        if (const auto line = debug_.overdue(now)) base::log_debug("store", *line);
    }
    std::optional<Clock::time_point> wakes_at() const {
        return warnings_.wakes_at() ? warnings_.wakes_at() : debug_.wakes_at();
    }

private:
    base::LogLimiter warnings_;
    base::LogLimiter debug_;
};

}  // namespace ddp::store
