// What a link between two agents carries, as bytes: protocol.md's frames, of the messages of the
// decisions (membership_actions.hpp) and of those that only members send.
// Invariant: decode_from_member() and decode_from_coordinator() take what the other side's encode()
// makes and nothing else, whatever bytes they are given.
#pragma once

#include "base/net/address.hpp"
#include "launcher/hosts/membership/membership.hpp"
#include "launcher/hosts/membership/membership_actions.hpp"
#include "launcher/hosts/messages/rows_message.hpp"
#include "launcher/hosts/messages/silent_message.hpp"
#include "launcher/hosts/messages/stacks_message.hpp"
#include "launcher/hosts/messages/timeline_message.hpp"
#include "launcher/report/failure.hpp"
#include "launcher/verdict/rank_pace.hpp"
#include "launcher/verdict/rank_state.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddp::launcher {

inline constexpr std::size_t max_link_message_bytes = std::size_t{4} << 20;

// Up.
struct JoinMessage {
    std::string job;  // its --rdzv-id
    HostSize size;    // without the member's number and address, which the coordinator gives
    int min_hosts = 1;
    int max_hosts = 1;
};
// Clocks are steady ones, in nanoseconds.
struct BeatMessage {
    std::uint64_t number = 0;
    std::int64_t clock_ns = 0;  // the sender's
    std::int64_t echo_ns = 0;   // the coordinator's, of the last reply that is here; 0: none
};
struct StartedMessage {
    int round = 0;
};
struct EndedMessage {
    int round = 0;
    std::int64_t clock_ns = 0;  // the coordinator's, as far as the member knows it
    WorkerEnd end;
};
struct DrainedMessage {
    int round = 0;
    PartEnd end = PartEnd::success;
    // Where the part could not start, not go on, or not be ended: why, and that exit code.
    std::string trouble = {};
    int exit_code = 0;
};
// Whether the client of that question belongs to the job.
struct VouchedMessage {
    std::uint64_t question = 0;
    bool is_of_job = false;
};
// Of the member's workers, where the welcome has asked for it.
struct ProgressMessage {
    int round = 0;
    int running = 0;
    std::int64_t step = 0;             // of the slowest rank here that publishes any
    std::int64_t steps_in_1000_s = 0;  // of the slowest
};
// What is to be seen of the member's ranks, by the coordinator's clock. Unasked: an alarm, without
// ranks, when one waits for too long; and when the part has ended so that somebody is to blame.
struct SightingMessage {
    int round = 0;
    std::uint64_t question = 0;  // 0: unasked
    Sighting seen = {};          // names no hosts
};
// How its ranks have spent a stretch of time.
struct PacesMessage {
    int round = 0;
    Paces paces = {};  // names no hosts
};
struct LeaveMessage {};
// Its user asks for the end of the whole job; SIGKILL: at once.
struct StopJobMessage {
    int signal = 0;
};
using FromMember = std::variant<JoinMessage, BeatMessage, StartedMessage, EndedMessage,
                                DrainedMessage, VouchedMessage, ProgressMessage, SightingMessage,
                                PacesMessage, RowsMessage, TimelineMessage, StacksMessage,
                                ThreadsMessage, ReadingsMessage, LeaveMessage, StopJobMessage>;

// Down, beside MemberMessage's.
struct WelcomeMessage {
    MemberId member = 0;
    std::string run_id;  // of the job, the same on all hosts
    std::string run;     // the name of its log folder,
    std::string host;    // and in it of this host's
    std::chrono::milliseconds node_timeout{0};
    bool has_successors = false;  // the coordinator acts with a quorum alone
    bool wants_progress = false;
    bool wants_timeline = false;
};
// The token for TLS, which follows.
struct CredentialMessage {
    std::string credential;
};
struct BeatReply {
    std::uint64_t number = 0;
    std::int64_t clock_of_beat_ns = 0;
    std::int64_t clock_ns = 0;
};
// SIGKILL to the workers of the round, now.
struct KillRoundMessage {
    int round = 0;
};
// A client of the store has come from that address of the member's host: whose is it?
struct VouchMessage {
    std::uint64_t question = 0;
    base::SocketAddress there;
    base::SocketAddress here;  // the store's
};
// What is to be seen of the member's ranks now, and how long do they usually wait in these calls?
struct LookMessage {
    int round = 0;
    std::uint64_t question = 0;
    std::vector<CallKey> calls = {};
    std::vector<int> stacks_of = {};  // ranks; their host reads and says where they are
};
inline constexpr std::size_t most_calls_asked = 4096;
inline constexpr std::size_t most_stacks_asked = 16;
// For the member's user.
struct SayMessage {
    std::string text;
    bool is_failure = false;  // how the job ended
};
using FromCoordinator =
    std::variant<CredentialMessage, WelcomeMessage, BeatReply, KillRoundMessage, VouchMessage,
                 LookMessage, ShowMessage, ReadMessage, SayMessage, MemberMessage>;

// The bytes of a frame, without its length. Texts of a worker's end are cut where they would not
// fit, the last lines of stderr first.
std::string encode(const FromMember& message);
std::string encode(const FromCoordinator& message);
// Throws UsageError on anything that encode() does not make.
FromMember decode_from_member(std::string_view frame);
FromCoordinator decode_from_coordinator(std::string_view frame);

}  // namespace ddp::launcher
