// A training job in made-up time, whose ranks are unequal, pause and write checkpoints, as jobs do:
// whoever looks at it as the launcher does finds nothing to say.
#include "launcher/verdict/call_shares.hpp"
#include "launcher/verdict/hang_judge.hpp"
#include "launcher/verdict/slow_news.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using contract::OperationRecord;
using Duration = UsualTimes::Duration;
using Time = Verdict::Time;

constexpr int size = 4;
constexpr std::uint32_t group = 7;
constexpr std::size_t remembered = 64;  // operations of a rank

struct Manners {
    Duration step = 10ms;  // that a rank computes, mostly
    double spread = 0.5;   // of its logarithm
    double pauses = 1e-3;  // of 300 ms, so often a step
    int steps_a_checkpoint = 1000;
    Duration checkpoint = 2s;  // of rank 0, while the others wait
};

class Job {
public:
    Job(const Manners& manners, unsigned seed) : manners_(manners), random_(seed) {}

    // Each rank computes, then all meet. Looks at them in between.
    void step() {
        const Time began = free_;
        const bool saves = ++steps_ % manners_.steps_a_checkpoint == 0;
        for (int rank = 0; rank < size; ++rank) {
            came_[at(rank)] = began + compute() + (saves && rank == 0 ? manners_.checkpoint : 0s);
        }
        free_ = *std::ranges::max_element(came_) + 20us;
        for (; next_look_ < free_; next_look_ += 250ms) {
            if (next_look_ >= began) look(next_look_, saves);
        }
        for (int rank = 0; rank < size; ++rank) remember(rank, came_[at(rank)], free_);
    }
    int verdicts() const { return verdicts_; }
    const std::string& last() const { return last_; }

private:
    static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
    Duration compute() {
        std::lognormal_distribution<double> times(0.0, manners_.spread);
        std::bernoulli_distribution pauses(manners_.pauses);
        const auto usual = std::chrono::duration_cast<Duration>(
            std::chrono::duration<double>(manners_.step) * times(random_));
        return usual + (pauses(random_) ? Duration(300ms) : Duration(0));
    }
    static OperationRecord operation(std::uint64_t sequence, Time started) {
        return {.serial = sequence,
                .group = group,
                .sequence = sequence,
                .call = {.kind = contract::Collective::all_reduce, .elements = 128},
                .file = "train.cpp",
                .line = 42,
                .started = started};
    }
    void remember(int rank, Time started, Time ended) {
        auto& done = done_[at(rank)];
        done.push_back(operation(static_cast<std::uint64_t>(steps_), started));
        done.back().ended = ended;
        if (done.size() > remembered) done.pop_front();
    }
    // As HangWatch does.
    void look(Time now, bool saves) {
        std::vector<RankState> ranks;
        for (int rank = 0; rank < size; ++rank) {
            RankState state{.rank = rank};
            auto& done = done_[at(rank)];
            std::optional<Time> before;
            for (const OperationRecord& one : done) {
                if (one.serial > seen_[at(rank)]) usual_.note(one, before);
                before = one.ended;
                seen_[at(rank)] = std::max(seen_[at(rank)], one.serial);
            }
            const auto number = static_cast<std::uint64_t>(steps_);
            const bool came = came_[at(rank)] <= now;
            state.record.pid = 1;
            state.record.phase = contract::Phase::running;
            state.record.groups = {{.id = group,
                                    .size = size,
                                    .started = came ? number : number - 1,
                                    .ended = number - 1}};
            state.record.operations.assign(done.begin(), done.end());
            if (came) state.record.operations.push_back(operation(number, came_[at(rank)]));
            state.record.is_at_checkpoint = !came && saves && rank == 0;
            ranks.push_back(std::move(state));
        }
        usual_.settle();
        if (const auto verdict = judge(ranks, usual_, now)) {
            ++verdicts_;
            last_ = verdict->text;
        }
        const auto no_use = [](int) { return std::optional<ProcessUse>(); };
        shares_.note(now, ranks, {});
        const auto paces = shares_.take_paces(now, ranks);
        if (!paces) return;
        for (const std::string& text : slow_.consider(*paces, no_use)) {
            ++verdicts_;
            last_ = text;
        }
    }

    Manners manners_;
    std::mt19937_64 random_;
    int steps_ = 0;
    Time free_{1s};
    Time next_look_{1s};
    std::array<Time, size> came_{};
    std::array<std::deque<OperationRecord>, size> done_;
    std::array<std::uint64_t, size> seen_{};
    UsualTimes usual_;
    CallShares shares_;
    SlowNews slow_;
    int verdicts_ = 0;
    std::string last_;
};

void run(const Manners& manners, int steps, unsigned seed) {
    Job job(manners, seed);
    for (int step = 0; step < steps; ++step) job.step();
    EXPECT_EQ(job.verdicts(), 0) << "seed " << seed << ": " << job.last();
}

TEST(VerdictSimulation, NothingIsSaidOfAJobThatRuns) {
    const unsigned seed = std::random_device{}();
    run({}, 10'000, seed);
    run({.step = 400ms, .spread = 0.3, .checkpoint = 20s}, 2'000, seed);
}

TEST(VerdictSimulation, SoakNothingIsSaidOfAJobThatRuns) {
    run({}, 1'000'000, 1);
    run({.spread = 1.0}, 1'000'000, 2);
    for (unsigned seed = 0; seed < 1000; ++seed)
        run({.step = 400ms, .spread = 0.3, .checkpoint = 20s}, 2'000, seed);
}

}  // namespace
}  // namespace ddp::launcher
