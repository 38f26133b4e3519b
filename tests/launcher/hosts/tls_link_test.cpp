// Links with TLS, and what the two ends make of tokens: over socket pairs, without a clock.
#include "launcher/hosts/coordinator.hpp"
#include "launcher/hosts/link.hpp"
#include "launcher/hosts/member.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using base::UniqueFd;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TlsContext context_of(char digit) { return TlsContext(*JobToken::parse(std::string(64, digit))); }

// An hour, or when this machine was started: the clock has no time before.
std::chrono::steady_clock::time_point long_ago() {
    using Time = std::chrono::steady_clock::time_point;
    return std::max(std::chrono::steady_clock::now() - 1h, Time{1s});
}

std::array<UniqueFd, 2> socket_pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Two links that have said nothing yet.
struct Links {
    explicit Links(const TlsContext& tls, std::array<UniqueFd, 2> ends = socket_pair())
        : client(std::move(ends[0]), Link::Begins::with_frames),
          server(std::move(ends[1]), Link::Begins::with_hello) {
        client.queue_hello(Transport::tls);
        client.begin_tls(tls.session(TlsRole::client, "the coordinator"));
    }
    void begin_server(const TlsContext& tls) {
        client.flush();
        server.receive();
        server.begin_tls(tls.session(TlsRole::server, "the agent at h2"));
        server.begin_frames(hello_bytes);
    }
    void carry() {
        for (int i = 0; i < 4; ++i) {
            client.flush();
            server.receive();
            server.flush();
            client.receive();
        }
    }

    Link client;
    Link server;
};

// Whole, in their order, and with and without TLS: what must not wait does not.
TEST(Link, LetsWhatCanWaitGoAfterWhatCannot) {
    const TlsContext tls = context_of('a');
    for (const bool in_tls : {false, true}) {
        std::array<UniqueFd, 2> ends = socket_pair();
        std::optional<Links> links;
        std::optional<Link> plain[2];
        if (in_tls) {
            links.emplace(tls);
            links->begin_server(tls);
            links->carry();
        } else {
            for (int i = 0; i < 2; ++i) {
                plain[i].emplace(std::move(ends[i]), Link::Begins::with_frames);
            }
        }
        Link& from = in_tls ? links->client : *plain[0];
        Link& to = in_tls ? links->server : *plain[1];
        constexpr int count = 26;
        for (int i = 0; i < count; ++i) {
            from.queue_later(std::string(1, static_cast<char>('a' + i)) +
                             std::string(1U << 20, '-'));
        }
        from.flush();
        from.queue("beat");
        from.flush();
        EXPECT_TRUE(from.is_open()) << from.trouble();
        std::string order;
        for (int i = 0; i < 10'000 && order.size() < count + 1; ++i) {
            from.flush();
            to.receive();
            while (const auto frame = to.next()) order += *frame == "beat" ? '!' : (*frame)[0];
        }
        std::string later = order;
        std::erase(later, '!');
        ASSERT_EQ(later.size(), std::size_t{count});
        EXPECT_TRUE(std::ranges::is_sorted(later));
        EXPECT_LT(order.find('!'), 6U) << "behind the first few that were on their way";
        EXPECT_FALSE(from.wants_to_send());
    }
}

TEST(TlsLink, CarriesFramesInBothDirections) {
    const TlsContext tls = context_of('a');
    Links links(tls);
    links.client.queue("join");
    links.client.queue("beat");
    links.begin_server(tls);
    links.server.queue("welcome");
    links.carry();
    EXPECT_EQ(links.server.next(), "join");
    EXPECT_EQ(links.server.next(), "beat");
    EXPECT_EQ(links.server.next(), std::nullopt);
    EXPECT_EQ(links.client.next(), "welcome");
    EXPECT_TRUE(links.client.is_open() && links.server.is_open());
    EXPECT_FALSE(links.client.wants_to_send());
}

TEST(TlsLink, HoldsItsBacklogToo) {
    const TlsContext tls = context_of('a');
    const std::string frame(max_link_message_bytes, 'x');
    const auto queued_until_closed = [&](Link& link) {
        int queued = 0;
        for (; queued < 100 && link.is_open(); ++queued) {
            link.queue(frame);
            link.flush();
        }
        EXPECT_THAT(link.trouble(), HasSubstr("takes nothing"));
        return queued;
    };
    Links before(tls);
    EXPECT_LE(queued_until_closed(before.client), 17) << "while nobody has proved himself";
    Links after(tls);
    after.begin_server(tls);
    after.carry();
    EXPECT_LE(queued_until_closed(after.client), 17);
}

TEST(TlsLink, EndsForARecordThatWasAltered) {
    const TlsContext tls = context_of('a');
    auto up = socket_pair();
    const int wire = up[0].get();  // both the client's end and ours: we write between its records
    Links links(tls, std::move(up));
    links.begin_server(tls);
    links.carry();
    const std::string record = std::string("\x17\x03\x03\0\x20", 5) + std::string(32, '?');
    ASSERT_EQ(::send(wire, record.data(), record.size(), 0), 37);
    links.server.receive();
    EXPECT_FALSE(links.server.is_open());
    EXPECT_THAT(links.server.trouble(), HasSubstr("altered"));
    EXPECT_EQ(links.server.next(), std::nullopt);
}

TEST(TlsLink, TakesInNoMoreThanItIsAskedTo) {
    auto ends = socket_pair();
    Link link(std::move(ends[0]), Link::Begins::with_hello);
    const std::string much(10'000, 'x');
    ASSERT_EQ(::send(ends[1].get(), much.data(), much.size(), 0), 10'000);
    link.receive(0);
    EXPECT_EQ(link.received_bytes(), 0U);
    link.receive(77);
    EXPECT_EQ(link.received_bytes(), 77U);
    link.receive();
    EXPECT_EQ(link.received_bytes(), 10'000U);
}

TEST(TlsLink, TakesNoFramesBeforeItsBeginning) {
    auto ends = socket_pair();
    Link link(std::move(ends[0]), Link::Begins::with_frames);
    std::string frames;
    base::append_frame(frames, "credential");
    base::append_frame(frames, "welcome");
    ASSERT_EQ(::send(ends[1].get(), frames.data(), frames.size(), 0),
              static_cast<ssize_t>(frames.size()));
    link.receive();
    EXPECT_EQ(link.next(), "credential");
    link.begin_tls(context_of('a').session(TlsRole::client, "the coordinator"));
    EXPECT_FALSE(link.is_open());
    EXPECT_THAT(link.trouble(), HasSubstr("before TLS"));
}

// A member that is to be told the token, and whoever listens where the coordinator should.
class Credentials : public ::testing::Test {
protected:
    Credentials() : ends_(socket_pair()) {
        member_.begin(std::move(ends_[0]), now_);
        member_.look_at_time(now_ += 10s);
        EXPECT_EQ(heard(), encode_hello(Transport::credential)) << "nothing more in the clear";
        EXPECT_FALSE(member_.next()) << "there is nothing to wait for but an answer";
    }
    void say(const FromCoordinator& message, int times = 1) {
        std::string frame;
        for (int i = 0; i < times; ++i) base::append_frame(frame, encode(message));
        EXPECT_EQ(::send(ends_[1].get(), frame.data(), frame.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(frame.size()));
        member_.run_ready();
    }
    std::string heard() {
        std::string bytes(1000, '\0');
        const auto got = ::recv(ends_[1].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        return bytes.substr(0, got > 0 ? static_cast<std::size_t>(got) : 0);
    }
    // Empty: it has heard none.
    std::string refusal() {
        const auto order = member_.take_order(now_);
        const auto* refused = order ? std::get_if<RefusedMessage>(&*order) : nullptr;
        return refused != nullptr ? refused->why : "";
    }

    std::chrono::steady_clock::time_point now_ = long_ago();
    std::array<UniqueFd, 2> ends_;
    Member member_{JoinMessage{}, 5s, JobProof{.credential_for = "Slurm job 9"}};
};

TEST_F(Credentials, ThatAreNoneAreRefused) {
    say(CredentialMessage{"MUNGE:AwQFAAAx:"}, 1000);
    EXPECT_THAT(refusal(), HasSubstr("no proof by MUNGE that the coordinator is of this user"));
    EXPECT_EQ(refusal(), "") << "one is enough";
    EXPECT_EQ(heard(), "");
}

TEST_F(Credentials, ComeBeforeAnythingElse) {
    say(WelcomeMessage{.member = 1, .run_id = "r", .run = "r", .host = "h", .node_timeout = 5s});
    EXPECT_EQ(member_.lost(), "it speaks before it has proved itself");
    EXPECT_FALSE(member_.is_welcome());
    EXPECT_FALSE(member_.take_order(now_));
}

TEST_F(Credentials, AreNotNeededToBeRefused) {
    say(MemberMessage(RefusedMessage{"this job has none"}));
    EXPECT_EQ(refusal(), "this job has none");
}

TEST_F(Credentials, NobodyElseIsToldOfThisHostsSockets) {
    say(VouchMessage{.question = 1,
                     .there = *base::numeric_address("10.77.0.1", 1),
                     .here = *base::numeric_address("10.77.0.2", 2)});
    EXPECT_EQ(heard(), "") << "it tells nobody of this host's sockets";
    EXPECT_EQ(member_.lost(), "it speaks before it has proved itself");
}

// The coordinator of a job of two hosts, its own member, and one more agent.
class Joining : public ::testing::Test {
protected:
    using Time = Coordinator::Time;

    struct End {
        std::string refused;
        bool welcome = false;
    };
    static JoinMessage join_of(const std::string& host, int rank) {
        JoinMessage join;
        join.size.host = host;
        join.size.node_rank = rank;
        join.size.slots = 1;
        join.min_hosts = join.max_hosts = 2;
        return join;
    }
    void begin(std::optional<TlsContext> tls) {
        MembershipRules rules;
        rules.min_hosts = rules.max_hosts = 2;
        coordinator_.emplace(
            rules,
            Coordinator::Job{
                .name = "", .run_id = "id", .run = "run", .proof = {.tls = std::move(tls)}},
            [](const RoundMessage&) {}, now_);
        own_.emplace(join_of("h1", 0), 5s);
        own_->begin(coordinator_->connect_own_member(now_), now_);
    }
    // How it ends for an agent that comes.
    End come(std::optional<TlsContext> tls) {
        auto ends = socket_pair();
        Member member(join_of("h2", 1), 5s, JobProof{.tls = std::move(tls)});
        member.begin(std::move(ends[0]), now_);
        coordinator_->take(std::move(ends[1]), {}, now_);
        End end;
        for (int turn = 0; turn < 20; ++turn) {
            now_ += 10ms;
            coordinator_->run_ready(now_);
            own_->run_ready();
            while (const auto order = own_->take_order(now_)) {
                if (const auto* words = std::get_if<SayMessage>(&*order)) {
                    said_.push_back(words->text);
                }
            }
            member.run_ready();
            while (const auto order = member.take_order(now_)) {
                if (const auto* no = std::get_if<RefusedMessage>(&*order)) end.refused = no->why;
                end.welcome = end.welcome || std::holds_alternative<WelcomeMessage>(*order);
            }
        }
        return end;
    }

    // Past, so that nothing waits for it.
    Time now_ = long_ago();
    std::optional<Coordinator> coordinator_;
    std::optional<Member> own_;
    std::vector<std::string> said_;
};

TEST_F(Joining, TakesWhoHasTheTokenAndRefusesWhoHasAnotherOrNone) {
    begin(context_of('a'));
    const End another = come(context_of('b'));
    EXPECT_THAT(another.refused, HasSubstr("the job tokens of the coordinator and this host"));
    const End none = come(std::nullopt);
    EXPECT_THAT(none.refused, HasSubstr("has no job token, and this job has one"));
    EXPECT_FALSE(another.welcome || none.welcome);
    come(std::nullopt);
    std::vector<std::string> refusals;
    for (const std::string& words : said_) {
        if (words.starts_with("refused: ")) refusals.push_back(words);
    }
    ASSERT_EQ(refusals.size(), 2U) << "of each kind one";
    EXPECT_THAT(refusals[0], HasSubstr("job tokens"));
    EXPECT_THAT(refusals[1], HasSubstr("has no job token"));
    const End right = come(context_of('a'));
    EXPECT_TRUE(right.welcome) << right.refused;
}

TEST_F(Joining, RefusesATokenWhereTheJobHasNone) {
    begin(std::nullopt);
    const End with = come(context_of('a'));
    EXPECT_THAT(with.refused, HasSubstr("the coordinator has no job token, and this host has one"));
    EXPECT_FALSE(with.welcome);
    EXPECT_THAT(said_, ::testing::Contains(HasSubstr("has a job token, and this job has none")));
    EXPECT_TRUE(come(std::nullopt).welcome);
}

TEST_F(Joining, ReadsLittleOfWhoHasNotJoined) {
    begin(context_of('a'));
    const std::vector<std::string> floods{
        encode_hello(Transport::tls) + std::string("\x16\x03\x01\x40\x00", 5),
        encode_hello(Transport::clear), encode_hello(Transport::tls) + "?",
        encode_hello(Transport::tls)};
    for (const std::string& beginning : floods) {
        auto ends = socket_pair();
        const std::string much = beginning + std::string(100'000, '\x01');
        ASSERT_EQ(::send(ends[0].get(), much.data(), much.size(), MSG_DONTWAIT),
                  static_cast<ssize_t>(much.size()));
        coordinator_->take(UniqueFd(::fcntl(ends[1].get(), F_DUPFD_CLOEXEC, 0)), {}, now_);
        for (int turn = 0; turn < 5; ++turn) coordinator_->run_ready(now_ += 10ms);
        std::string rest(much.size() + 1, '\0');
        std::size_t left = 0;
        ssize_t got = 0;
        while ((got = ::recv(ends[1].get(), rest.data(), rest.size(), MSG_DONTWAIT)) > 0) {
            left += static_cast<std::size_t>(got);
        }
        EXPECT_GE(left, much.size() - 6144) << "what the coordinator has not read";
    }
}

TEST_F(Joining, HasRoomForSoManyStrangersAtATime) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    begin(context_of('a'));
    coordinator_->run_ready(now_);
    std::vector<UniqueFd> strangers;
    const auto is_closed = [](const UniqueFd& end) {
        char byte = 0;
        return ::recv(end.get(), &byte, 1, MSG_DONTWAIT) == 0;
    };
    for (int i = 0; i < 1001; ++i) {
        auto ends = socket_pair();
        coordinator_->take(std::move(ends[1]), encode_hello(Transport::tls), now_);
        strangers.push_back(std::move(ends[0]));
        EXPECT_FALSE(is_closed(strangers.back())) << i;
        EXPECT_EQ(is_closed(strangers.front()), i == 1000) << i;
    }
    EXPECT_FALSE(is_closed(strangers[1]));
    EXPECT_TRUE(come(context_of('a')).welcome) << "an agent always finds room";
    EXPECT_TRUE(is_closed(strangers[1])) << "for which another goes";
    coordinator_->look_at_time(now_ += 5s);
    EXPECT_TRUE(is_closed(strangers.back()));
}

TEST_F(Joining, EndsWhoGoesNoFurtherThanHalfAHandshake) {
    begin(context_of('a'));
    auto ends = socket_pair();
    TlsSession stalled = context_of('a').session(TlsRole::client, "it");
    const std::string first = encode_hello(Transport::tls) + stalled.take_wire();
    ASSERT_GT(::send(ends[0].get(), first.data(), first.size(), 0), 0);
    coordinator_->take(std::move(ends[1]), {}, now_);
    coordinator_->run_ready(now_ += 10ms);
    std::string answer(1 << 16, '\0');
    EXPECT_GT(::recv(ends[0].get(), answer.data(), answer.size(), MSG_DONTWAIT), 0);
    coordinator_->look_at_time(now_ += 4900ms);
    EXPECT_LT(::recv(ends[0].get(), answer.data(), answer.size(), MSG_DONTWAIT), 0);
    coordinator_->look_at_time(now_ += 400ms);
    EXPECT_EQ(::recv(ends[0].get(), answer.data(), answer.size(), MSG_DONTWAIT), 0);
}

}  // namespace
}  // namespace ddp::launcher
