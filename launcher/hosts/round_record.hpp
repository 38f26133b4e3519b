// What the coordinator knows of the round that runs, from its members' words: which workers have
// ended and how. Pure.
// Invariant: an end has the rank and the host that the round's table gives the worker, whatever a
// member says.
#pragma once

#include "launcher/hosts/membership/membership.hpp"
#include "launcher/hosts/messages/messages.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// How a round ended, over all hosts.
struct RoundEnd {
    AskForJudgement asked;
    RoundMessage round;           // its table may be empty: none was begun
    std::vector<WorkerEnd> ends;  // by the time at which they ended
    struct Trouble {              // of a part that could not start, go on or be ended
        std::string host;
        std::string text;
        int exit_code = 1;
    };
    std::vector<Trouble> troubles;
    int signal = 0;              // that the user sent, somewhere
    bool is_successors = false;  // how its workers ended is not known
    std::chrono::milliseconds lasted{0};
};

class RoundRecord {
public:
    RoundRecord() = default;
    // Of a lost coordinator's round its successor knows no ends.
    enum class Of { own_round, a_lost_coordinator };
    explicit RoundRecord(RoundMessage round, Of of = Of::own_round)
        : round_(std::move(round)), of_(of) {}

    const RoundMessage& round() const { return round_; }
    // Whether it is of this round and tells of a failure by itself, while that still counts.
    bool note(MemberId member, const EndedMessage& message);
    // For the first failure: others change nothing from now on.
    void note_stop() { is_stopping_ = true; }
    void note(MemberId member, const DrainedMessage& message);
    void note_signal(int signal);

    std::vector<WorkerEnd> ends() const;  // by time
    // The round is over everywhere, and somebody is to judge it.
    void ask(const AskForJudgement& asked) { asked_ = asked; }
    // Once after ask().
    std::optional<RoundEnd> take_end();

private:
    struct End {
        std::int64_t clock_ns;
        WorkerEnd end;
    };

    RoundMessage round_;
    Of of_ = Of::own_round;
    std::map<int, End> ends_;  // by rank
    std::vector<RoundEnd::Trouble> troubles_;
    int signal_ = 0;
    bool is_stopping_ = false;
    std::optional<AskForJudgement> asked_;
};

}  // namespace ddp::launcher
