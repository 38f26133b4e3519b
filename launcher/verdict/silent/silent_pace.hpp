// SilentPace: ranks that others wait for again and again, of programs that record nothing, as
// PyTorch's. Some times a second it is noted whose first thread waits; where one waits much less
// than the others (slow_news.hpp), the stacks of all are read some times. Pure.
//
//   watching    nobody waits much less
//   reading     one does: where the ranks are has to be known
//   confirmed   the others were in collectives, and it in the same, but much less often: said
//
// Invariant: nothing is said of ranks that have not been seen in a collective with the others, nor
// of one long wait.
#pragma once

#include "launcher/verdict/rank_state.hpp"
#include "launcher/verdict/silent/rank_reading.hpp"
#include "launcher/verdict/slow_news.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {

class SilentPace {
public:
    using Time = RankState::Time;
    static constexpr int looks_of_stretch = 32;  // at each rank, or more
    // In a stretch who waits is woken so often at least, or all wait for one thing.
    static constexpr std::uint64_t least_switches = 6;
    static constexpr std::chrono::seconds between_readings{2};
    static constexpr int least_readings = 8;  // good ones
    static constexpr int most_readings = 24;
    // After readings that have not confirmed it; then twice as long each time.
    static constexpr std::chrono::seconds pause_at_first{60};

    // Of the first threads of all ranks that run, again and again; where they are others than
    // before, it begins anew. `use`: as SlowNews's.
    void note(Time now, std::span<const RankRuns> ranks, const SlowNews::Look& use);
    // They hang, or nobody is to look any more.
    void forget() { *this = SilentPace(); }
    bool is_time_to_read(Time now) const {
        return state_ == State::reading && now >= next_reading_;
    }
    // Of all, in that moment.
    void judge(Time now, std::span<const RankReading> ranks);

    // For the user; mostly nothing.
    std::vector<std::string> take_news() { return std::exchange(news_, {}); }
    const std::optional<SlowFacts>& facts() const { return confirmed_; }

private:
    enum class State : std::uint8_t { watching, reading, confirmed };
    // Of a rank, in a stretch.
    struct Waits {
        std::string host = {};
        pid_t pid = 0;
        std::uint64_t switches = 0;  // at its beginning
        int looks = 0;
        int waits = 0;
    };
    // What readings have shown of a rank.
    struct Seen {
        std::set<std::string> collectives = {};  // "all_reduce (train.py:9)"
        int in_collectives = 0;
        std::map<std::string, int> elsewhere = {};  // "load (train.py:9)": how often
    };
    void begin_stretch(Time now, std::span<const RankRuns> ranks);
    void end_stretch(Time now, const SlowNews::Look& use);
    void begin_readings(Time now);
    bool is_confirmed() const;
    std::string where_they_were() const;
    void give_up(Time now);

    State state_ = State::watching;
    std::map<int, Waits> waits_;  // by rank
    Time begun_{};
    SlowNews slow_{"waiting"};
    SlowFacts suspects_;  // what readings are to confirm
    std::optional<SlowFacts> confirmed_;
    std::map<int, Seen> seen_;
    int asked_ = 0;  // readings
    int good_ = 0;   // of them, in which all were read alike
    Time next_reading_{};
    std::chrono::seconds pause_ = pause_at_first;
    std::vector<std::string> news_;
};

}  // namespace ddp::launcher
