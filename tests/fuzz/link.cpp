// What two agents take from the connection between them: a hello, and messages of both sides. Input:
// which of the three, then the bytes.
#include "fuzz/seeds.hpp"
#include "launcher/hosts/messages.hpp"

#include <ddp/error.hpp>

#include <cstdlib>

namespace {

using namespace ddp::launcher;

WorkerEnd an_end() {
    WorkerEnd end;
    end.rank = 3;
    end.status.signal = 11;
    end.error = ddp::contract::ErrorReport{.message = "PeerError", .peer = 1, .timestamp = 17};
    end.last_stderr = "a line\n";
    return end;
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    JoinMessage join;
    join.job = "run";
    join.size.host = "h1";
    join.size.node_rank = 1;
    EndedMessage ended;
    ended.end = an_end();
    RoundMessage round;
    round.round = 2;
    round.table = make_rank_table(std::vector<HostSize>{join.size, join.size}, {});
    std::vector<std::string> all{"\x02" + encode_hello()};
    for (const FromMember& message :
         {FromMember(join), FromMember(BeatMessage{1, 2}), FromMember(StartedMessage{2}),
          FromMember(ended), FromMember(DrainedMessage{2, PartEnd::failure}),
          FromMember(LeaveMessage{}), FromMember(StopJobMessage{15})}) {
        all.push_back(std::string(1, '\0') + encode(message));
    }
    for (const MemberMessage& message :
         {MemberMessage(RefusedMessage{"no"}), MemberMessage(WaitMessage{true}),
          MemberMessage(round), MemberMessage(StopRoundMessage{2, StopReason::user, -1, 15}),
          MemberMessage(FinishMessage{84})}) {
        all.push_back("\x01" + encode(FromCoordinator(message)));
    }
    all.push_back("\x01" + encode(FromCoordinator(
                               WelcomeMessage{7, "run", "run_1", "h2", std::chrono::seconds(5)})));
    all.push_back("\x01" + encode(FromCoordinator(KillRoundMessage{2})));
    all.push_back("\x01" + encode(FromCoordinator(SayMessage{"lost h2", true})));
    all.push_back("\x01" + encode(FromCoordinator(BeatReply{1, 2, 3})));
    return all;
}

// What is taken is what encode() makes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    const auto which = input.byte() % 3;
    const std::string_view bytes = input.rest();
    try {
        if (which == 0 && encode(decode_from_member(bytes)) != bytes) std::abort();
        if (which == 1 && encode(decode_from_coordinator(bytes)) != bytes) std::abort();
    } catch (const ddp::UsageError&) {
        return 0;
    }
    std::uint8_t version = 0;
    const bool is_agent = which == 2 && look_for_hello(bytes, version) == Hello::agent;
    if (is_agent && !bytes.starts_with(encode_hello())) std::abort();
    return 0;
}
