// Messages between agents, as bytes: each comes back as it was, and nothing else is taken for one.
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/hosts/messages/hello.hpp"

#include "launcher/options/option_kinds.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/seed.hpp"

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;

EndedMessage an_end() {
    EndedMessage message{.round = 3, .clock_ns = 1'234'567'890'123, .end = {}};
    message.end = {.rank = 70'000,
                   .local_rank = 5,
                   .pid = 4711,
                   .status = {.code = 0, .signal = 11, .core_dumped = true},
                   .stopped_with = 15,
                   .ran_for = 90s,
                   .stop_took = 20ms,
                   .error = contract::ErrorReport{.message = "PeerError: rank 3 has left",
                                                  .peer = 3,
                                                  .callstack = "a\nb",
                                                  .timestamp = 1'700'000'000},
                   .gpu = "cuda:0 = GPU 1",
                   .last_stderr = std::string("a\0b", 3),
                   .last_call = "in barrier",
                   .oom = OomEvidence::cgroup};
    return message;
}

PacesMessage some_paces() {
    PacesMessage message{.round = 4, .paces = {.time = 2500ms}};
    message.paces.tcp = TcpCounts{.sent = ~std::uint64_t{0}, .sent_again = 7, .read = 3h};
    message.paces.ranks.push_back({.rank = 2, .in_calls = 1});
    RankPace& pace = message.paces.ranks.emplace_back();
    pace = {.rank = 5, .pid = 4711, .in_calls = 0.25, .groups = {7, ~std::uint32_t{0}}};
    pace.use = ProcessUse{.at = ProcessUse::Time(-3s),
                          .cpu = 90s,
                          .waited_for_processor = 5ms,
                          .quotas = {{"/sys/fs/cgroup/a", 100, 17}},
                          .major_faults = ~std::uint64_t{0},
                          .swapped_bytes = 4096,
                          .processors = "0-3,8"};
    return message;
}

SightingMessage a_sighting() {
    const auto at = [](std::chrono::milliseconds time) { return RankState::Time(time); };
    SightingMessage message{.round = 2, .question = ~std::uint64_t{0}};
    message.seen = {.usual = {{7, 500ms, 1s}, {~CallKey{0}, 2s, 3s}},
                    .is_alarm = true,
                    .is_held_for_debugger = true};
    RankState rank{.rank = 3,
                   .has_ended = true,
                   .started = at(-5s),
                   .process = {.pid = 4711,
                               .state = 'T',
                               .tracer = 4712,
                               .is_frozen = true,
                               .waits_in = "read of /data"},
                   .held_since = at(6s),
                   .cpu_share = 0.25};
    rank.record = {.pid = 4710,
                   .phase = contract::Phase::running,
                   .is_at_checkpoint = true,
                   .waits_unrecorded = true,
                   .step = -1,
                   .joined = at(1s)};
    rank.record.groups = {{.id = 5, .size = 2, .started = 8, .ended = 7},
                          {.id = ~std::uint32_t{0},
                           .size = 1 << 24,
                           .started = ~std::uint64_t{0},
                           .ended = 1,
                           .end = contract::GroupEnd::failed,
                           .on_gpu = true,
                           .transfer = contract::TransferRecord{.sends = true,
                                                                .peer = -7,
                                                                .bytes = ~std::uint64_t{0},
                                                                .file = "a.cpp",
                                                                .line = 9,
                                                                .since = at(2s)}}};
    rank.record.operations = {{.serial = 7,
                               .group = 5,
                               .sequence = 8,
                               .call = {.kind = contract::Collective::adopt,
                                        .dtype = DType::boolean,
                                        .op = ReduceOp::premul_sum,
                                        .root = -1,
                                        .elements = 128,
                                        .uneven = true,
                                        .source = ~std::uint32_t{0}},
                               .file = "b.cpp",
                               .line = 42,
                               .started = at(3s),
                               .ended = at(4s)},
                              {.serial = 8, .group = 5, .sequence = 9, .started = at(5s)}};
    message.seen.ranks = {RankState{.rank = 1}, rank};
    return message;
}

std::vector<FromMember> all_of_members() {
    JoinMessage join{.job = "run", .size = {}, .min_hosts = 2, .max_hosts = 3};
    join.size = {.host = "h1", .slots = 8, .node_rank = 1, .is_endpoint = true, .started_ns = -5};
    JoinMessage plain = join;
    plain.size.node_rank.reset();
    EndedMessage short_end = an_end();
    short_end.end.error.reset();
    EndedMessage bare_error = an_end();
    bare_error.end.error = contract::ErrorReport{.message = "e"};
    return {join,
            plain,
            BeatMessage{.number = ~std::uint64_t{0}, .clock_ns = 7},
            StartedMessage{2},
            an_end(),
            short_end,
            bare_error,
            DrainedMessage{.round = 2, .end = PartEnd::failure},
            DrainedMessage{.round = 2, .end = PartEnd::success},
            DrainedMessage{.round = 2, .end = PartEnd::failure, .trouble = "no", .exit_code = 127},
            VouchedMessage{.question = ~std::uint64_t{0}, .is_of_job = true},
            VouchedMessage{.question = 7},
            ProgressMessage{.round = 2, .running = 8, .step = 7, .steps_in_1000_s = INT64_MAX},
            a_sighting(),
            some_paces(),
            RowsMessage{.round = 2, .question = 7, .rows = {{.rank = 1, .pid = 4711}}},
            RowsMessage{},
            TimelineMessage{},
            StacksMessage{.round = 2, .stacks = {{.rank = 1, .pid = 4711}}},
            ThreadsMessage{.round = 2, .threads = {{.rank = 1, .pid = 4711, .looks = 4}}},
            ThreadsMessage{},
            ReadingsMessage{.round = 2, .question = 7, .ranks = {{.rank = 1}}, .ended = {2}},
            SightingMessage{},
            LeaveMessage{},
            StopJobMessage{15}};
}

std::vector<FromCoordinator> all_of_coordinators() {
    const std::vector<HostSize> hosts{
        {.member = 9, .host = "h1", .address = "10.77.0.1", .slots = 8},
        {.member = 1, .host = "h2", .address = "fe80::1%eth0", .slots = 1, .role = "reader"},
        {.member = 5, .host = "h3", .slots = 3}};
    const RoundMessage round{.round = 4, .restarts = 2, .table = make_rank_table(hosts)};
    return {
        WelcomeMessage{
            .member = 1'234'567, .run_id = "run", .run = "run_1", .host = "h2", .node_timeout = 5s},
        BeatReply{.number = 4, .clock_of_beat_ns = -1, .clock_ns = INT64_MAX},
        MemberMessage(RefusedMessage{"no"}),
        MemberMessage(WaitMessage{true}),
        MemberMessage(WaitMessage{false}),
        MemberMessage(round),
        MemberMessage(StopRoundMessage{1, StopReason::failure, 3, 0}),
        MemberMessage(StopRoundMessage{1, StopReason::user, -1, 15}),
        MemberMessage(FinishMessage{84}),
        KillRoundMessage{3},
        CredentialMessage{"MUNGE:AwQFAAA:"},
        VouchMessage{.question = ~std::uint64_t{0},
                     .there = *base::numeric_address("10.77.0.2", 40'000),
                     .here = *base::numeric_address("fd77::1", 29'500)},
        ShowMessage{.round = 2, .question = ~std::uint64_t{0}},
        ReadMessage{.round = 2, .question = ~std::uint64_t{0}},
        LookMessage{.round = 2, .question = 7, .calls = {0, ~CallKey{0}}, .stacks_of = {0, 5}},
        LookMessage{},
        MemberMessage(StopRoundMessage{1, StopReason::hang, -1, 0}),
        SayMessage{"lost h2", true},
        WelcomeMessage{.member = 1,
                       .run_id = "",
                       .run = "",
                       .host = "",
                       .node_timeout = 1ms,
                       .has_successors = true,
                       .wants_progress = true,
                       .wants_timeline = true}};
}

TEST(LinkMessages, ComeBackAsTheyWere) {
    for (const FromMember& message : all_of_members()) {
        const std::string bytes = encode(message);
        const FromMember back = decode_from_member(bytes);
        EXPECT_EQ(back.index(), message.index());
        EXPECT_EQ(encode(back), bytes);
    }
    for (const FromCoordinator& message : all_of_coordinators()) {
        const std::string bytes = encode(message);
        const FromCoordinator back = decode_from_coordinator(bytes);
        EXPECT_EQ(back.index(), message.index());
        EXPECT_EQ(encode(back), bytes);
    }
}

TEST(LinkMessages, CarryEachFieldOfAWorkersEnd) {
    const auto message = std::get<EndedMessage>(decode_from_member(encode(an_end())));
    EXPECT_EQ(message.round, 3);
    EXPECT_EQ(message.clock_ns, 1'234'567'890'123);
    const WorkerEnd& end = message.end;
    EXPECT_EQ(end.rank, 70'000);
    EXPECT_EQ(end.local_rank, 5);
    EXPECT_EQ(end.pid, 4711);
    EXPECT_EQ(end.status.code, 0);
    EXPECT_EQ(end.status.signal, 11);
    EXPECT_TRUE(end.status.core_dumped);
    EXPECT_EQ(end.stopped_with, 15);
    EXPECT_EQ(end.ran_for, 90s);
    EXPECT_EQ(end.stop_took, 20ms);
    ASSERT_TRUE(end.error);
    EXPECT_EQ(end.error->message, "PeerError: rank 3 has left");
    EXPECT_EQ(end.error->peer, 3);
    EXPECT_EQ(end.error->callstack, "a\nb");
    EXPECT_EQ(end.error->timestamp, 1'700'000'000);
    EXPECT_EQ(end.gpu, "cuda:0 = GPU 1");
    EXPECT_EQ(end.oom, OomEvidence::cgroup);
    EXPECT_EQ(end.last_stderr, std::string("a\0b", 3));
    EXPECT_EQ(end.last_call, "in barrier");
}

TEST(LinkMessages, CarryEachFieldOfPaces) {
    const auto back = std::get<PacesMessage>(decode_from_member(encode(some_paces())));
    EXPECT_EQ(back.round, 4);
    EXPECT_EQ(back.paces.time, 2500ms);
    ASSERT_EQ(back.paces.ranks.size(), 2U);
    EXPECT_EQ(back.paces.ranks[0].rank, 2);
    EXPECT_EQ(back.paces.ranks[0].in_calls, 1);
    EXPECT_FALSE(back.paces.ranks[0].use);
    const RankPace& pace = back.paces.ranks[1];
    EXPECT_EQ(pace.rank, 5);
    EXPECT_EQ(pace.pid, 4711);
    EXPECT_EQ(pace.in_calls, 0.25);
    EXPECT_EQ(pace.groups, (std::vector<std::uint32_t>{7, ~std::uint32_t{0}}));
    ASSERT_TRUE(pace.use);
    EXPECT_EQ(pace.use->at, ProcessUse::Time(-3s));
    EXPECT_EQ(pace.use->cpu, 90s);
    EXPECT_EQ(pace.use->waited_for_processor, 5ms);
    ASSERT_EQ(pace.use->quotas.size(), 1U);
    EXPECT_EQ(pace.use->quotas[0].folder, "/sys/fs/cgroup/a");
    EXPECT_EQ(pace.use->quotas[0].periods, 100U);
    EXPECT_EQ(pace.use->quotas[0].used_up, 17U);
    EXPECT_EQ(pace.use->major_faults, ~std::uint64_t{0});
    EXPECT_EQ(pace.use->swapped_bytes, 4096U);
    EXPECT_EQ(pace.use->processors, "0-3,8");
}

TEST(LinkMessages, CarryEachFieldOfASighting) {
    const SightingMessage sent = a_sighting();
    const auto back = std::get<SightingMessage>(decode_from_member(encode(sent)));
    EXPECT_EQ(back.round, 2);
    EXPECT_EQ(back.question, ~std::uint64_t{0});
    EXPECT_TRUE(back.seen.is_alarm);
    EXPECT_TRUE(back.seen.is_held_for_debugger);
    ASSERT_EQ(back.seen.usual.size(), 2U);
    EXPECT_EQ(back.seen.usual[1].call, ~CallKey{0});
    EXPECT_EQ(back.seen.usual[1].patience, 2s);
    EXPECT_EQ(back.seen.usual[1].before, 3s);
    ASSERT_EQ(back.seen.ranks.size(), 2U);
    EXPECT_FALSE(back.seen.ranks[0].held_since);
    EXPECT_FALSE(back.seen.ranks[0].cpu_share);
    const RankState& was = sent.seen.ranks[1];
    const RankState& rank = back.seen.ranks[1];
    EXPECT_EQ(rank.rank, was.rank);
    EXPECT_TRUE(rank.has_ended);
    EXPECT_EQ(rank.started, was.started);
    EXPECT_EQ(rank.process.pid, was.process.pid);
    EXPECT_EQ(rank.process.state, 'T');
    EXPECT_EQ(rank.process.tracer, was.process.tracer);
    EXPECT_TRUE(rank.process.is_frozen);
    EXPECT_EQ(rank.process.waits_in, was.process.waits_in);
    EXPECT_EQ(rank.held_since, was.held_since);
    EXPECT_EQ(rank.cpu_share, was.cpu_share);
    const contract::RankRecord& record = rank.record;
    EXPECT_EQ(record.pid, 4710);
    EXPECT_EQ(record.phase, contract::Phase::running);
    EXPECT_TRUE(record.is_at_checkpoint);
    EXPECT_TRUE(record.waits_unrecorded);
    EXPECT_EQ(record.step, -1);
    EXPECT_EQ(record.joined, was.record.joined);
    ASSERT_EQ(record.groups.size(), 2U);
    EXPECT_FALSE(record.groups[0].transfer);
    EXPECT_EQ(record.groups[0].started, 8U);
    EXPECT_EQ(record.groups[0].ended, 7U);
    const contract::GroupRecord& group = record.groups[1];
    EXPECT_EQ(group.id, ~std::uint32_t{0});
    EXPECT_EQ(group.size, 1 << 24);
    EXPECT_EQ(group.end, contract::GroupEnd::failed);
    EXPECT_TRUE(group.on_gpu);
    EXPECT_FALSE(record.groups[0].on_gpu);
    ASSERT_TRUE(group.transfer);
    EXPECT_EQ(describe(*group.transfer), describe(*was.record.groups[1].transfer));
    EXPECT_EQ(group.transfer->since, was.record.groups[1].transfer->since);
    ASSERT_EQ(record.operations.size(), 2U);
    EXPECT_EQ(record.operations[0].call, was.record.operations[0].call);
    EXPECT_EQ(record.operations[0].ended, was.record.operations[0].ended);
    EXPECT_EQ(describe(record.operations[0]), describe(was.record.operations[0]));
    EXPECT_EQ(record.operations[1].serial, 8U);
    EXPECT_EQ(record.operations[1].started, was.record.operations[1].started);
    EXPECT_FALSE(record.operations[1].ended);
}

// A page may say anything, and a host may have thousands of them.
TEST(LinkMessages, CarryWhatFitsOfASighting) {
    SightingMessage message = a_sighting();
    RankState rank = message.seen.ranks[1];
    rank.record.pid = -1;
    rank.cpu_share = -1;
    contract::GroupRecord group = rank.record.groups[1];
    group.transfer->file = std::string(508, 'f');
    rank.record.groups.assign(contract::recorded_groups, group);
    contract::OperationRecord operation = rank.record.operations[0];
    rank.record.operations.clear();
    for (std::uint64_t i = 1; i <= contract::recorded_operations; ++i) {
        operation.serial = i;
        rank.record.operations.push_back(operation);
    }
    message.seen.ranks.clear();
    for (rank.rank = 0; rank.rank < max_workers; ++rank.rank) message.seen.ranks.push_back(rank);
    const std::string bytes = encode(message);
    EXPECT_LT(bytes.size(), max_link_message_bytes);
    const auto back = std::get<SightingMessage>(decode_from_member(bytes));
    EXPECT_GT(back.seen.ranks.size(), 100U);
    EXPECT_LT(back.seen.ranks.size(), std::size_t{max_workers});
    EXPECT_EQ(back.seen.ranks[0].record.pid, 0);
    EXPECT_EQ(back.seen.ranks[0].record.operations.back().serial, contract::recorded_operations);
}

TEST(LinkMessages, CarryNoTimesWhoseDifferencesAreNoNumbers) {
    SightingMessage message = a_sighting();
    message.seen.ranks[1].record.joined = RankState::Time::max();
    EXPECT_THROW(decode_from_member(encode(message)), UsageError);
    message = a_sighting();
    message.seen.ranks[1].rank = 1;
    EXPECT_THROW(decode_from_member(encode(message)), UsageError) << "rank 1 twice";
    message = a_sighting();
    message.seen.usual[0].patience = -1ns;
    EXPECT_THROW(decode_from_member(encode(message)), UsageError);
}

TEST(LinkMessages, CarryBothEndsOfAConnection) {
    VouchMessage message{.question = 7,
                         .there = *base::numeric_address("fe80::2%lo", 65'535),
                         .here = *base::numeric_address("::ffff:10.77.0.1", 1)};
    const auto back = std::get<VouchMessage>(decode_from_coordinator(encode(message)));
    EXPECT_EQ(back.question, 7U);
    EXPECT_EQ(base::host_and_port(back.there.host(), back.there.port()), "[fe80::2]:65535")
        << "links have other names there";
    EXPECT_EQ(base::host_and_port(back.here.host(), back.here.port()), "10.77.0.1:1");
    message.there = {};
    EXPECT_THROW(decode_from_coordinator(encode(message)), UsageError);
}

TEST(LinkMessages, CarryTheWholeTableOfARound) {
    const auto messages = all_of_coordinators();
    const auto& sent = std::get<RoundMessage>(std::get<MemberMessage>(messages[5]));
    const auto back = std::get<MemberMessage>(decode_from_coordinator(encode(messages[5])));
    EXPECT_EQ(std::get<RoundMessage>(back), sent);
}

TEST(LinkMessages, FitInAFrameHoweverMuchAWorkerSaid) {
    EndedMessage message = an_end();
    const std::string much(5 << 20, 'x');
    message.end.error->message = message.end.error->callstack = message.end.last_stderr = much;
    const std::string bytes = encode(FromMember(message));
    EXPECT_LT(bytes.size(), max_link_message_bytes);
    const auto back = std::get<EndedMessage>(decode_from_member(bytes));
    EXPECT_EQ(back.end.error->message, much.substr(0, 1 << 20));
}

// Whether the bytes are a message of that side.
bool is_taken(const std::string& bytes, bool of_member) {
    try {
        if (of_member) {
            const FromMember message = decode_from_member(bytes);
            EXPECT_EQ(encode(message), bytes) << "what is taken is what encode() makes";
        } else {
            const FromCoordinator message = decode_from_coordinator(bytes);
            EXPECT_EQ(encode(message), bytes) << "what is taken is what encode() makes";
        }
        return true;
    } catch (const UsageError&) {
        return false;
    }
}

TEST(LinkMessages, ThatAreCutOrTooLongOrOfTheOtherSideAreRefused) {
    const auto expect_refusals = [](const std::string& bytes, bool of_member) {
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            EXPECT_FALSE(is_taken(bytes.substr(0, size), of_member)) << size;
        }
        EXPECT_FALSE(is_taken(bytes + '\0', of_member));
        EXPECT_FALSE(is_taken(bytes, !of_member));
    };
    for (const auto& message : all_of_members()) expect_refusals(encode(message), true);
    for (const auto& message : all_of_coordinators()) expect_refusals(encode(message), false);
}

TEST(LinkMessages, ThatAreDamagedAreRefusedOrAreOthers) {
    std::mt19937_64 random(store_test::random_seed());
    std::vector<std::string> frames[2];
    for (const auto& message : all_of_coordinators()) frames[0].push_back(encode(message));
    for (const auto& message : all_of_members()) frames[1].push_back(encode(message));
    int refused = 0;
    for (int i = 0; i < 20'000; ++i) {
        const bool of_member = i % 2 == 1;
        std::string bytes = frames[of_member][random() % frames[of_member].size()];
        for (auto changes = random() % 3 + 1; changes > 0; --changes) {
            bytes[random() % bytes.size()] = static_cast<char>(random());
        }
        refused += is_taken(bytes, of_member) ? 0 : 1;
    }
    EXPECT_GT(refused, 2'000);
}

TEST(LinkMessages, OfARoundWithNoHostsOrMoreRanksThanANumberHoldsAreRefused) {
    RoundMessage round;
    round.round = 1;
    EXPECT_FALSE(is_taken(encode(FromCoordinator(MemberMessage(round))), false));
    HostRanks many;
    many.slots = 2'000'000'000;
    many.role_world_size = 1;
    round.table.hosts.assign(2, many);
    EXPECT_FALSE(is_taken(encode(FromCoordinator(MemberMessage(round))), false));
}

TEST(LinkMessages, OfAHostWithMoreWorkersThanALauncherStartsAreRefused) {
    JoinMessage join{.job = "j", .size = {.host = "h1", .slots = 4096}};
    EXPECT_TRUE(is_taken(encode(FromMember(join)), true));
    ++join.size.slots;
    EXPECT_FALSE(is_taken(encode(FromMember(join)), true));
}

TEST(LinkHello, IsAnAgentsOrAStrangersFromItsFirstByte) {
    for (const Transport transport : {Transport::clear, Transport::tls, Transport::credential}) {
        const std::string hello = encode_hello(transport);
        ASSERT_EQ(hello.size(), hello_bytes);
        for (std::size_t size = 0; size < hello.size(); ++size) {
            EXPECT_EQ(look_for_hello(hello.substr(0, size)).kind, Hello::not_yet) << size;
        }
        const SaidHello said = look_for_hello(hello);
        EXPECT_EQ(said.kind, Hello::agent);
        EXPECT_EQ(said.version, link_version);
        EXPECT_EQ(said.transport, transport);
    }
    EXPECT_EQ(look_for_hello(std::string(1, '\0')).kind, Hello::stranger) << "a store's client";
    const std::string other =
        "\xDD"
        "D0";
    EXPECT_EQ(look_for_hello(other).kind, Hello::stranger);
}

TEST(LinkHello, TellsAnotherVersion) {
    std::string hello = encode_hello();
    hello[4] = 9;
    EXPECT_EQ(look_for_hello(hello).kind, Hello::other_version);
    EXPECT_EQ(look_for_hello(hello).version, 9);
    for (const char flags : {'\x03', '\x04', '\xFF'}) {
        hello = encode_hello();
        hello[5] = flags;
        EXPECT_EQ(look_for_hello(hello).kind, Hello::stranger) << "flags this version has not";
    }
}

}  // namespace
}  // namespace ddp::launcher
