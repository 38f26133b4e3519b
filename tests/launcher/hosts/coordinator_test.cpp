// The coordinator and a member over real connections: what neither may take from the other.
#include "launcher/hosts/coordinator.hpp"

#include "base/net/socket.hpp"
#include "launcher/hosts/member.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <array>
#include <csignal>
#include <thread>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

JoinMessage join_of(const std::string& host, const MembershipRules& rules) {
    return {.job = "job",
            .size = {.host = host, .slots = 1},
            .min_hosts = rules.min_hosts,
            .max_hosts = rules.max_hosts};
}

// A job whose coordinator and first member are the test.
class CoordinatorTest : public ::testing::Test {
protected:
    CoordinatorTest() {
        member_.begin(coordinator_.connect_own_member(Clock::now()), Clock::now());
    }

    struct Ends {
        base::UniqueFd ours;
        base::UniqueFd theirs;
    };
    static Ends connect() {
        const base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
        auto ours = base::connect_tcp("127.0.0.1", base::local_port(listener.get()),
                                      base::Deadline::after(10s));
        base::UniqueFd theirs(
            ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        return {std::move(ours.fd), std::move(theirs)};
    }
    // Host h2's end of a connection, over which it has said that it joins.
    Link joining(base::UniqueFd socket) const {
        Link link(std::move(socket), Link::Begins::with_frames);
        link.queue_hello(Transport::clear);
        link.queue(encode(FromMember(join_of("h2", rules_))));
        link.flush();
        return link;
    }
    // As the agent's loop does, with what the first member is told.
    void turn(Clock::time_point now) {
        coordinator_.run_ready(now);
        coordinator_.look_at_time(now);
        member_.run_ready();
        member_.look_at_time(now);
        while (const auto order = member_.take_order(now)) {
            if (const auto* words = std::get_if<SayMessage>(&*order)) said_.push_back(words->text);
        }
    }
    void turn_for(std::chrono::milliseconds time) {
        for (const auto end = Clock::now() + time; Clock::now() < end;) {
            turn(Clock::now());
            std::this_thread::sleep_for(2ms);
        }
    }
    static std::optional<FromCoordinator> next_of(Link& link) {
        link.receive();
        const auto frame = link.next();
        return frame ? std::optional(decode_from_coordinator(*frame)) : std::nullopt;
    }

    const MembershipRules rules_{.min_hosts = 2, .max_hosts = 3};
    Coordinator coordinator_{
        rules_, {.name = "job", .run_id = "job", .run = "run"}, [](const auto&) {}, Clock::now()};
    Member member_{join_of("h1", rules_), 5s};
    std::vector<std::string> said_;
};

TEST_F(CoordinatorTest, TellsWhoOnlyAsksOfThisJobAloneThatItIsThere) {
    for (const char* job : {"job", "another"}) {
        Ends ends = connect();
        Link link(std::move(ends.ours), Link::Begins::with_frames);
        JoinMessage question = join_of("h2", rules_);
        question.size.slots = 0;
        question.job = job;
        link.queue_hello(Transport::clear);
        link.queue(encode(FromMember(question)));
        link.flush();
        coordinator_.take(std::move(ends.theirs), {}, Clock::now());
        turn_for(20ms);
        const auto answer = next_of(link);
        if (question.job == "job") {
            ASSERT_TRUE(answer);
            const auto& refused = std::get<RefusedMessage>(std::get<MemberMessage>(*answer));
            EXPECT_EQ(refused.why, "another host coordinates this job");
        } else {
            EXPECT_FALSE(answer);
            EXPECT_FALSE(link.is_open());
        }
    }
    EXPECT_TRUE(said_.empty()) << said_.front();
}

// As of an agent that got no answer in time and has connected again.
TEST_F(CoordinatorTest, TakesNobodyIntoTheJobWhoHasGoneAlready) {
    Ends ends = connect();
    { const Link link = joining(std::move(ends.ours)); }
    std::this_thread::sleep_for(10ms);
    coordinator_.take(std::move(ends.theirs), {}, Clock::now());
    turn_for(100ms);
    EXPECT_THAT(said_, Not(Contains(HasSubstr("lost"))));
}

TEST_F(CoordinatorTest, CallsNoHostSilentWhoseKernelAnswers) {
    Ends ends = connect();
    Link link = joining(std::move(ends.ours));
    coordinator_.take(std::move(ends.theirs), {}, Clock::now());
    turn_for(2s);
    EXPECT_THAT(said_, Not(Contains(HasSubstr("no answer"))));
}

// Of 64 MiB that it leaves unread.
TEST_F(CoordinatorTest, LosesAMemberThatTakesNothingOfWhatIsSaid) {
    Ends ends = connect();
    Link link = joining(std::move(ends.ours));
    coordinator_.take(std::move(ends.theirs), {}, Clock::now());
    const std::string words(std::size_t{1} << 20, 'w');
    for (int i = 0; i < 80; ++i) {
        coordinator_.say(2, words, false);
        turn(Clock::now());
    }
    EXPECT_THAT(said_, Contains(HasSubstr("lost h2")));
}

TEST_F(CoordinatorTest, SaysOnceWhatIsRefusedAgainAndAgain) {
    std::vector<Link> links;
    for (int i = 0; i < 3; ++i) {
        Ends ends = connect();
        Link& link = links.emplace_back(std::move(ends.ours), Link::Begins::with_frames);
        JoinMessage join = join_of("h2", rules_);
        join.job = "another";
        link.queue_hello(Transport::clear);
        link.queue(encode(FromMember(join)));
        link.flush();
        coordinator_.take(std::move(ends.theirs), {}, Clock::now());
    }
    turn_for(20ms);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("refused: host h2")));
}

// Else an offset would be wrong by more than half of its round trip.
TEST_F(CoordinatorTest, TellsTheTimeAtWhichItReadABeat) {
    Ends ends = connect();
    Link link(std::move(ends.ours), Link::Begins::with_frames);
    const auto start = Clock::now();
    std::this_thread::sleep_for(20ms);
    link.queue_hello(Transport::clear);
    link.queue(encode(FromMember(join_of("h2", rules_))));
    link.queue(encode(FromMember(BeatMessage{1, clock_ns_of(Clock::now())})));
    link.flush();
    coordinator_.take(std::move(ends.theirs), {}, start);
    std::optional<BeatReply> reply;
    for (int i = 0; i < 5 && !reply; ++i) {
        const auto message = next_of(link);
        if (message && std::holds_alternative<BeatReply>(*message)) {
            reply = std::get<BeatReply>(*message);
        }
    }
    ASSERT_TRUE(reply);
    EXPECT_GE(reply->clock_ns, reply->clock_of_beat_ns);
}

TEST(Member, ReckonsTheOtherClockFromWhenTheAnswerWasRead) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    Link link{base::UniqueFd(ends[0]), Link::Begins::with_hello};
    Member member(join_of("h2", {}), 5s);
    const auto start = Clock::now();
    member.begin(base::UniqueFd(ends[1]), start);
    std::this_thread::sleep_for(100ms);
    // Of the same clock.
    link.queue(
        encode(FromCoordinator(BeatReply{1, clock_ns_of(start), clock_ns_of(Clock::now())})));
    link.flush();
    member.run_ready();
    member.ended(1, start, {});
    link.receive();
    link.begin_frames(hello_bytes);
    std::int64_t told = 0;
    while (const auto frame = link.next()) {
        const FromMember message = decode_from_member(*frame);
        if (const auto* end = std::get_if<EndedMessage>(&message)) told = end->clock_ns;
    }
    const std::chrono::nanoseconds error(told - clock_ns_of(start));
    EXPECT_LE(error, 80ms) << "half of the round trip, which took 100 ms or little more";
}

}  // namespace
}  // namespace ddp::launcher
