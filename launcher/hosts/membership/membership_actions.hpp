// What the coordinator says to members, and what else it is to do, by its membership's decisions.
#pragma once

#include "launcher/hosts/membership/rank_table.hpp"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace ddp::launcher {

// Why a round was stopped, or ended.
enum class StopReason : std::uint8_t {
    failure,  // a worker failed
    loss,     // a host was lost or left
    growth,   // others have come
    user,     // somebody asked for the end
    hang,     // ranks hold up the others (--on-hang=stop)
    success,  // it was not stopped: all of its parts ended well
};

// What the coordinator says to a member.
struct WaitMessage {
    bool is_spare = false;  // the job has all hosts that it may have
};
struct RoundMessage {
    int round = 0;  // 1, 2, ...
    int restarts = 0;
    MemberId coordinator = 0;  // one that serves only is not in the table
    RankTable table;
    friend bool operator==(const RoundMessage&, const RoundMessage&) = default;
};
// The round ends: set the abort word, stop the workers, say drained.
struct StopRoundMessage {
    int round = 0;
    StopReason reason{};
    int rank = -1;   // that failed, or holds up the others; -1: none
    int signal = 0;  // that the user sent; 0: none
};
struct RefusedMessage {
    std::string why;
};
struct FinishMessage {
    int exit_code = 0;
};
using MemberMessage =
    std::variant<WaitMessage, RoundMessage, StopRoundMessage, RefusedMessage, FinishMessage>;

struct SendTo {
    MemberId to = 0;
    MemberMessage message;
};
// The same round to each of them, by place: one table, however many they are.
struct GiveRound {
    std::vector<MemberId> to;
    RoundMessage round;
};
// For the users of all hosts.
struct SayEverywhere {
    std::string text;
};
// The round has ended well, or so that it may cost a restart, and nothing of it lives: call
// restart() or finish().
struct AskForJudgement {
    int round = 0;
    StopReason reason{};
    bool has_lost_host = false;  // since it began
};
using MembershipAction = std::variant<SendTo, GiveRound, SayEverywhere, AskForJudgement>;
using MembershipActions = std::vector<MembershipAction>;

}  // namespace ddp::launcher
