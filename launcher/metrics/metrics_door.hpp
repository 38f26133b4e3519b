// MetricsDoor: answers who asks for a job's metrics over HTTP. One request a connection, a few at a
// time; it waits for nobody. Invariant: what a guest sends, or does not, keeps no other out for
// long, and costs the agent no more than a look at the ranks each fifth of a second and format.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/metrics/metrics_listener.hpp"
#include "launcher/metrics/metrics_text.hpp"
#include "launcher/process/poller.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

namespace ddp::launcher {

class MetricsDoor {
public:
    using Clock = std::chrono::steady_clock;
    using Text = std::function<std::string(MetricsFormat)>;
    static constexpr std::size_t most_guests = 16;
    struct Times {
        // A guest that has not gone by then makes room for others.
        std::chrono::milliseconds patience{2000};
        // So long an answer is given again.
        std::chrono::milliseconds fresh{200};
    };

    // Events come with the tag and, in its lower half, an index for run_ready().
    MetricsDoor(Poller& events, Poller::Tag tag, MetricsListener listener, Times times);
    MetricsDoor(Poller& events, Poller::Tag tag, MetricsListener listener)
        : MetricsDoor(events, tag, std::move(listener), Times{}) {}
    ~MetricsDoor();
    MetricsDoor(const MetricsDoor&) = delete;
    MetricsDoor& operator=(const MetricsDoor&) = delete;

    void run_ready(std::size_t index, const Text& text);

private:
    struct Guest {
        base::UniqueFd fd = {};
        Clock::time_point came = {};
        std::string request = {};
        std::string answer = {};     // what is left of it
        bool has_been_told = false;  // all of it; what it sends now is nobody's
    };
    struct Kept {
        Clock::time_point made = {};
        std::string text = {};
    };

    void receive_guests();
    void refuse_one();
    void let_in(base::UniqueFd fd);
    void read(Guest& guest, const Text& text);
    void write(std::size_t slot);
    void dismiss(Guest& guest);
    std::string answer_to(const std::string& request, const Text& text);

    Poller& events_;
    Poller::Tag tag_;
    MetricsListener listener_;
    Times times_;
    base::UniqueFd spare_;                     // for who comes when there is no descriptor left
    std::array<Guest, most_guests> guests_{};  // those with index 1, 2, ...
    std::array<Kept, 2> kept_{};               // by format
};

}  // namespace ddp::launcher
