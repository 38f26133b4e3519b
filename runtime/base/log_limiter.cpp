// "closing connection 4711: unknown operation (and 2,999 more in the last second)".
#include "base/log_limiter.hpp"

#include <utility>

namespace ddp::base {
namespace {

constexpr std::chrono::seconds interval{1};

std::string with_commas(std::size_t number) {
    auto text = std::to_string(number);
    for (auto at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
    return text;
}

std::string with_count(std::string line, std::size_t more) {
    if (more > 0) line += " (and " + with_commas(more) + " more in the last second)";
    return line;
}

}  // namespace

std::optional<std::string> LogLimiter::admit(std::string line, Clock::time_point now) {
    if (now < next_) {
        ++left_out_;
        last_ = std::move(line);
        return std::nullopt;
    }
    next_ = now + interval;
    return with_count(std::move(line), std::exchange(left_out_, 0));
}

std::optional<std::string> LogLimiter::overdue(Clock::time_point now) {
    if (left_out_ == 0 || now < next_) return std::nullopt;
    next_ = now + interval;
    return with_count(std::move(last_), std::exchange(left_out_, 0) - 1);
}

std::optional<LogLimiter::Clock::time_point> LogLimiter::wakes_at() const {
    if (left_out_ == 0) return std::nullopt;
    return next_;
}

}  // namespace ddp::base
