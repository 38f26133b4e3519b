// What simulated worlds share: their time, what happens in it, and their random choices, which are
// the same each time for one seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <tuple>
#include <utility>

namespace ddp::launcher::testing {

class SimulatedWorld {
protected:
    using Time = std::chrono::steady_clock::time_point;
    using Milliseconds = std::chrono::milliseconds;

    explicit SimulatedWorld(std::uint64_t seed) : random_(seed) {}

    void at(Time time, std::function<void()> what) {
        events_.push({time, ++numbers_, std::move(what)});
    }
    void after(Milliseconds time, std::function<void()> what) { at(now_ + time, std::move(what)); }
    bool is_empty() const { return events_.empty(); }
    Time next_event() const { return events_.top().at; }
    // Of several at one time, the one that was given first.
    void run_event() {
        const Event event = events_.top();
        events_.pop();
        now_ = event.at;
        event.what();
    }

    Milliseconds up_to(Milliseconds most) {
        return Milliseconds(random_() % static_cast<std::uint64_t>(most.count() + 1));
    }
    bool happens(int percent) { return random_() % 100 < static_cast<std::uint64_t>(percent); }
    // Of a clock, which may be wrong by 1 %, and what it shows now.
    double clock_rate() { return 1 + (static_cast<double>(random_() % 2'001) - 1'000) / 100'000; }
    Time clock_with(double rate) const {
        const auto passed = std::chrono::duration<double>(now_ - start_) * rate;
        return start_ + std::chrono::duration_cast<Time::duration>(passed);
    }

    std::mt19937_64 random_;
    const Time start_ = Time{} + std::chrono::hours(1);
    Time now_ = start_;

private:
    struct Event {
        Time at;
        std::uint64_t number;
        std::function<void()> what;
        bool operator<(const Event& other) const {
            return std::tie(at, number) > std::tie(other.at, other.number);
        }
    };
    std::priority_queue<Event> events_;
    std::uint64_t numbers_ = 0;
};

}  // namespace ddp::launcher::testing
