// What two agents take from the connection between them: a hello, messages of both sides, and what
// comes where TLS is to be. Input: which of the six, then the bytes; of the last one how a
// conversation is altered on its way. Without libssl.so.3 the last three are left out. What is to be
// seen of ranks, and how they have spent their time, if it is taken, is judged.
#include "fuzz/seeds.hpp"
#include "launcher/hosts/inquiries/hang_inquiry.hpp"
#include "launcher/hosts/inquiries/slow_inquiry.hpp"
#include "launcher/hosts/messages/hello.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/hosts/tls_session.hpp"

#include <ddp/error.hpp>

#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

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

SightingMessage a_sighting() {
    SightingMessage message{.round = 2, .question = 1};
    message.seen.is_alarm = true;
    message.seen.usual = {{7, std::chrono::seconds(1), std::chrono::seconds(1)}};
    for (const int number : {0, 1}) {
        RankState rank{.rank = number};
        rank.record.pid = 4711;
        rank.record.phase = ddp::contract::Phase::running;
        rank.record.groups = {{.id = 5, .size = 2, .started = 8, .ended = 7}};
        rank.record.operations = {{.serial = 8, .group = 5, .sequence = 8, .file = "a.cpp"}};
        message.seen.ranks.push_back(rank);
    }
    return message;
}

PacesMessage some_paces() {
    PacesMessage message{.round = 2};
    message.paces.time = std::chrono::seconds(2);
    for (const int number : {0, 1}) {
        RankPace pace{.rank = number, .in_calls = 0.5};
        pace.groups = {5};
        pace.use = ProcessUse{.quotas = {{"/a", 2, 1}}, .processors = "0-3"};
        message.paces.ranks.push_back(std::move(pace));
    }
    return message;
}

// Again and again, as of both hosts; what they tell next is the same.
RowsMessage some_rows() {
    RowsMessage message{.round = 2, .question = 7};
    message.rows.push_back({.rank = 3,
                            .state = "running",
                            .ended = ExitStatus{.code = 3},
                            .phase = "in a group",
                            .call = "in barrier",
                            .since_call = std::chrono::seconds(3),
                            .share_in_calls = 0.5,
                            .use = {std::chrono::seconds(4), 1.5, 1 << 20}});
    return message;
}

StacksMessage some_stacks() {
    StacksMessage message{.round = 2};
    message.stacks.push_back({.rank = 3, .pid = 4711, .problem = "it has ended"});
    message.stacks.push_back({.rank = 4, .native = {{.tid = 5, .frames = {"read", "main"}}}});
    return message;
}

ReadingsMessage some_readings() {
    ReadingsMessage message{.round = 2, .question = 7, .ended = {5}};
    message.ranks.push_back({.rank = 3,
                             .is_whole = true,
                             .call = StackCall{"all_reduce", "train.py:9", 4712},
                             .own_frame = "step (train.py:9)",
                             .process = {.pid = 4711, .state = 'S', .waits_in = "futex"},
                             .runs = ThreadRuns{.switches = 7}});
    message.ranks.push_back({.rank = 4});
    return message;
}

TimelineMessage a_timeline() {
    TimelineMessage message{.round = 2, .part = {.names = {"step", "barrier (a.cpp:9)"}}};
    message.part.groups = {{.id = 7, .size = 2, .on_gpu = true}};
    message.part.rank = {.rank = 3, .pid = 4711, .started = 5, .ended = 50, .end = "exit code 0"};
    message.part.rank.items = {
        {.started = 7, .ended = 9, .number = 1},
        {.started = 8, .ended = 9, .name = 1, .what = ddp::contract::Activity::collective}};
    return message;
}

void compare(const PacesMessage& message) {
    SlowInquiry inquiry;
    const std::vector<HostSize> hosts{{.member = 1, .host = "h1", .slots = 2},
                                      {.member = 2, .host = "h2"}};
    inquiry.begin_round({.round = message.round, .table = make_rank_table(hosts)});
    SlowInquiry::Time now{std::chrono::hours(1)};
    for (int i = 0; i < 6; ++i) {
        inquiry.note(now, 1, message);
        inquiry.note(now, 2, message);
        inquiry.take_news(now += std::chrono::seconds(1));
    }
}

// Twice, as if asked for; the second host has never answered.
void judge(const SightingMessage& message) {
    HangInquiry inquiry(OnHang::stop, std::chrono::milliseconds(0));
    const std::vector<HostSize> hosts{{.member = 1, .host = "h1", .slots = 2},
                                      {.member = 2, .host = "h2"}};
    inquiry.begin_round({.round = message.round, .table = make_rank_table(hosts)});
    HangInquiry::Time now{std::chrono::hours(1)};
    for (int i = 0; i < 2; ++i) {
        inquiry.note(1, message);
        if (inquiry.take_question(now)) inquiry.note(1, message);
        inquiry.take_news(now += std::chrono::seconds(1));
    }
    inquiry.facts(true);
}

const std::optional<TlsContext>& tls() {
    static const std::optional<TlsContext> context = []() -> std::optional<TlsContext> {
        try {
            return TlsContext(*JobToken::parse(std::string(64, 'a')));
        } catch (const ddp::UsageError&) {
            return std::nullopt;
        }
    }();
    return context;
}

// Whoever makes these bytes does not know the token, and has heard nothing of this session.
void take_strangers(TlsSession session, ddp::fuzz::Input& input) {
    session.write("secret");
    while (!input.is_empty()) {
        session.take_in(input.text(1 + 16 * std::size_t{input.byte()}));
        if (session.is_established() || !session.take_plain().empty()) std::abort();
        session.take_wire();
    }
}

// Two ends that know the token; of each flight bytes are altered, left out or put in. What comes is
// the beginning of what was written, or nothing.
void alter_conversation(ddp::fuzz::Input& input) {
    std::array<TlsSession, 2> ends{tls()->session(TlsRole::client, "it"),
                                   tls()->session(TlsRole::server, "it")};
    const std::array<std::string, 2> said{"up, and more of it", "down, and more of it"};
    std::array<std::string, 2> heard;
    for (const std::size_t at : {0U, 1U}) ends.at(at).write(said.at(at));
    for (std::size_t flight = 0; flight < 6; ++flight) {
        const std::size_t from = flight % 2;
        std::string wire = ends.at(from).take_wire();
        for (int changes = input.byte() % 4; changes > 0 && !wire.empty(); --changes) {
            const std::size_t at = (input.byte() * std::size_t{256} + input.byte()) % wire.size();
            const std::uint8_t how = input.byte();
            if (how == 0) wire.erase(at, input.byte());
            if (how == 1) wire.insert(at, input.text(input.byte()));
            if (how > 1) wire[at] = static_cast<char>(wire[at] ^ how);
        }
        ends.at(1 - from).take_in(wire);
        heard.at(from) += ends.at(1 - from).take_plain();
        if (!said.at(from).starts_with(heard.at(from))) std::abort();
    }
}

void take_tls(int which, ddp::fuzz::Input& input) {
    if (!tls()) return;
    if (which == 3) take_strangers(tls()->session(TlsRole::server, "it"), input);
    if (which == 4) take_strangers(tls()->session(TlsRole::client, "it"), input);
    if (which == 5) alter_conversation(input);
}

// The flights of both ends, each as pieces for take_strangers().
std::array<std::string, 2> flights() {
    std::array<std::string, 2> all;
    TlsSession client = tls()->session(TlsRole::client, "it");
    TlsSession server = tls()->session(TlsRole::server, "it");
    client.write("join");
    const auto pass = [&](TlsSession& from, TlsSession& to, std::string& all_of_it) {
        const std::string wire = from.take_wire();
        to.take_in(wire);
        for (std::size_t at = 0; at < wire.size(); at += 1 + 16 * 255) {
            all_of_it += '\xFF' + wire.substr(at, 1 + 16 * 255);
        }
    };
    for (int i = 0; i < 2; ++i) {
        pass(client, server, all[0]);
        pass(server, client, all[1]);
    }
    return all;
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
    std::vector<std::string> all{"\x02" + encode_hello(), "\x02" + encode_hello(Transport::tls)};
    if (tls()) {
        const auto [up, down] = flights();
        all.push_back("\x03" + up);
        all.push_back("\x04" + down);
        all.push_back(std::string("\x05", 1) + std::string(6, '\0'));
        all.push_back("\x05\x01\x01\x02\x03\x04");
    }
    for (const FromMember& message :
         {FromMember(join), FromMember(BeatMessage{1, 2}), FromMember(StartedMessage{2}),
          FromMember(ended), FromMember(DrainedMessage{2, PartEnd::failure}),
          FromMember(a_sighting()), FromMember(some_paces()), FromMember(some_rows()),
          FromMember(a_timeline()), FromMember(some_stacks()), FromMember(some_readings()),
          FromMember(ThreadsMessage{2, {{.rank = 3, .pid = 4711}}}), FromMember(LeaveMessage{}),
          FromMember(StopJobMessage{15})}) {
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
    all.push_back("\x01" + encode(FromCoordinator(LookMessage{2, 7, {1, 2, 3}, {4, 5}})));
    all.push_back("\x01" + encode(FromCoordinator(ShowMessage{2, 7})));
    all.push_back("\x01" + encode(FromCoordinator(ReadMessage{2, 7})));
    all.push_back("\x01" + encode(FromCoordinator(SayMessage{"lost h2", true})));
    all.push_back("\x01" + encode(FromCoordinator(BeatReply{1, 2, 3})));
    return all;
}

// What is taken is what encode() makes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    const int which = input.byte() % 6;
    if (which >= 3) {
        take_tls(which, input);
        return 0;
    }
    const std::string_view bytes = input.rest();
    try {
        if (which == 0) {
            const FromMember message = decode_from_member(bytes);
            if (encode(message) != bytes) std::abort();
            if (const auto* seen = std::get_if<SightingMessage>(&message)) judge(*seen);
            if (const auto* paces = std::get_if<PacesMessage>(&message)) compare(*paces);
        }
        if (which == 1 && encode(decode_from_coordinator(bytes)) != bytes) std::abort();
    } catch (const ddp::UsageError&) {
        return 0;
    }
    const SaidHello hello = look_for_hello(bytes);
    const bool is_agent = which == 2 && hello.kind == Hello::agent;
    if (is_agent && !bytes.starts_with(encode_hello(hello.transport))) std::abort();
    return 0;
}
