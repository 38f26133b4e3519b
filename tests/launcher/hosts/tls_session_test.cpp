// Two ends of TLS with a token, back to back, cut, damaged, and with those who know no token.
#include "launcher/hosts/tls_session.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "support/seed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string hex = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const std::string other_hex = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefe";

TlsContext context_of(const std::string& digits) { return TlsContext(*JobToken::parse(digits)); }

const TlsContext& context() {
    static const TlsContext one = context_of(hex);
    return one;
}

struct Ends {
    TlsSession client = context().session(TlsRole::client, "the coordinator");
    TlsSession server = context().session(TlsRole::server, "the agent at h2");
};

// Until nothing is on its way; in pieces of at most so many bytes. What went over the wire.
struct Carried {
    std::size_t to_server = 0;
    std::size_t to_client = 0;
};
Carried carry(TlsSession& client, TlsSession& server, std::size_t piece = 1 << 20) {
    const auto pass = [&](TlsSession& from, TlsSession& to) {
        const std::string wire = from.take_wire();
        for (std::size_t at = 0; at < wire.size(); at += piece) to.take_in(wire.substr(at, piece));
        return wire.size();
    };
    Carried carried;
    for (;;) {
        const std::size_t up = pass(client, server);
        const std::size_t down = pass(server, client);
        carried.to_server += up;
        carried.to_client += down;
        if (up + down == 0) return carried;
    }
}

TEST(TlsSession, CarriesBothWaysOnceBothEndsHaveProvedThatTheyKnowTheToken) {
    for (const std::size_t piece : {1U, 7U, 1U << 20}) {
        Ends ends;
        EXPECT_FALSE(ends.client.is_established());
        const Carried carried = carry(ends.client, ends.server, piece);
        EXPECT_TRUE(ends.client.is_established()) << ends.client.trouble();
        EXPECT_TRUE(ends.server.is_established()) << ends.server.trouble();
        EXPECT_LT(carried.to_server, 600U) << "what a stranger may send is bounded by this";
        EXPECT_LT(carried.to_client, 600U);
        ends.client.write("up");
        ends.server.write("down");
        carry(ends.client, ends.server, piece);
        EXPECT_EQ(ends.server.take_plain(), "up");
        EXPECT_EQ(ends.client.take_plain(), "down");
        EXPECT_EQ(ends.client.take_plain(), "");
    }
}

TEST(TlsSession, SendsNothingOfWhatIsWrittenBeforeTheOtherSideHasProvedItself) {
    Ends ends;
    const std::string secret(3000, 's');
    ends.client.write(secret);
    EXPECT_EQ(ends.client.waiting_bytes(), secret.size());
    const std::string hello = ends.client.take_wire();
    EXPECT_EQ(hello.find("sss"), hello.npos);
    EXPECT_THAT(hello, HasSubstr(context().identity()));
    ends.server.take_in(hello);
    ends.server.write("reply");
    EXPECT_EQ(ends.server.waiting_bytes(), 5U) << "the client may be a replay";
    carry(ends.client, ends.server);
    EXPECT_EQ(ends.client.waiting_bytes(), 0U);
    EXPECT_EQ(ends.server.take_plain(), secret);
    EXPECT_EQ(ends.client.take_plain(), "reply");
}

TEST(TlsSession, CarriesMessagesOfAnySize) {
    std::mt19937_64 random(store_test::random_seed());
    Ends ends;
    carry(ends.client, ends.server);
    for (const std::size_t size : {1U, 16383U, 16384U, 16385U, 100'000U, 9'000'000U}) {
        std::string text(size, '\0');
        std::ranges::generate(text, [&] { return static_cast<char>(random()); });
        ends.client.write(text);
        ends.server.write(text);
        carry(ends.client, ends.server, 65'536);
        EXPECT_TRUE(ends.server.take_plain() == text) << size;
        EXPECT_TRUE(ends.client.take_plain() == text) << size;
    }
}

TEST(TlsSession, OfTwoTokensIsRefusedAtBothEnds) {
    TlsSession client = context_of(other_hex).session(TlsRole::client, "the coordinator");
    TlsSession server = context().session(TlsRole::server, "the agent at h2");
    client.write("secret");
    carry(client, server);
    EXPECT_THAT(client.trouble(),
                StartsWith("the job tokens of the coordinator and this host differ"));
    EXPECT_THAT(server.trouble(),
                StartsWith("the job tokens of the agent at h2 and this host differ"));
    EXPECT_FALSE(client.is_established() || server.is_established());
    EXPECT_EQ(server.take_plain(), "");
}

// Of one name and another key: whoever has read the name on the wire.
TEST(TlsSession, DoesNotTakeTheNameOfTheTokenForTheToken) {
    TlsSession client = context_of(other_hex).session(TlsRole::client, "the coordinator");
    TlsSession server = context().session(TlsRole::server, "the agent at h2");
    std::string hello = client.take_wire();
    const std::size_t at = hello.find(context_of(other_hex).identity());
    ASSERT_NE(at, hello.npos);
    hello.replace(at, context().identity().size(), context().identity());
    server.take_in(hello);
    EXPECT_THAT(server.trouble(), HasSubstr("job tokens"));
    client.take_in(server.take_wire());
    EXPECT_THAT(client.trouble(), HasSubstr("job tokens"));
}

TEST(TlsSession, NamesTheTokenByAHash) {
    EXPECT_EQ(context().identity(), context_of(hex).identity());
    EXPECT_NE(context().identity(), context_of(other_hex).identity());
    EXPECT_THAT(context().identity(), StartsWith("ddp-job:"));
    EXPECT_EQ(context().identity().size(), 24U);
    // The first 16 digits of sha256sum over "ddp job token id" and the 32 bytes.
    EXPECT_EQ(context().identity(), "ddp-job:2079a641786cc2bc");
}

TEST(TlsSession, TellsAnAnswerInTheClearAtItsFirstBytes) {
    const std::string refused =
        encode(FromCoordinator(MemberMessage(RefusedMessage{std::string(17, 'x')})));
    for (const std::size_t length : {22U, 0x0316U, 300U}) {
        for (const std::size_t piece : {1U, 1000U}) {
            TlsSession client = context().session(TlsRole::client, "the coordinator");
            client.write("secret");
            client.take_wire();
            std::string answer{static_cast<char>(length & 255), static_cast<char>(length >> 8),
                               '\0', '\0'};
            answer += refused;
            for (std::size_t at = 0; at < answer.size(); at += piece) {
                client.take_in(answer.substr(at, piece));
            }
            EXPECT_THAT(client.trouble(), StartsWith("the coordinator has no job token"));
            EXPECT_EQ(client.take_wire(), "");
            EXPECT_EQ(client.take_plain(), "");
        }
    }
}

TEST(TlsSession, WaitsForWhatIsCutOff) {
    TlsSession client = context().session(TlsRole::client, "the coordinator");
    client.take_in("");
    EXPECT_EQ(client.trouble(), "");
    Ends whole;
    const std::string hello = whole.client.take_wire();
    for (std::size_t size = 0; size < hello.size(); ++size) {
        TlsSession server = context().session(TlsRole::server, "the agent at h2");
        server.take_in(hello.substr(0, size));
        EXPECT_EQ(server.trouble(), "") << size;
        EXPECT_FALSE(server.is_established());
        EXPECT_EQ(server.take_wire(), "");
    }
    whole.server.take_in(hello);
    carry(whole.client, whole.server);
    whole.client.write("message");
    const std::string record = whole.client.take_wire();
    whole.server.take_in(record.substr(0, record.size() - 1));
    EXPECT_EQ(whole.server.take_plain(), "") << "no part of a record that is not whole";
    whole.server.take_in(record.substr(record.size() - 1));
    EXPECT_EQ(whole.server.take_plain(), "message");
}

TEST(TlsSession, OfAReplayIsNeverEstablished) {
    Ends ends;
    std::string up = ends.client.take_wire();
    ends.server.take_in(up);
    ends.client.take_in(ends.server.take_wire());
    ends.client.write("again");
    up += ends.client.take_wire();
    TlsSession server = context().session(TlsRole::server, "the agent at h2");
    server.take_in(up);
    EXPECT_FALSE(server.is_established());
    EXPECT_NE(server.trouble(), "");
    EXPECT_EQ(server.take_plain(), "");
}

// Of each flight each byte.
TEST(TlsSession, CarriesNothingThatWasAlteredOnItsWay) {
    for (int flight = 0; flight < 4; ++flight) {
        for (std::size_t byte = 0, size = 1; byte < size; ++byte) {
            Ends ends;
            ends.client.write("up");
            for (int now = 0; now <= flight; ++now) {
                TlsSession& from = now % 2 == 0 ? ends.client : ends.server;
                TlsSession& to = now % 2 == 0 ? ends.server : ends.client;
                if (now == 3) ends.server.write("down");
                std::string wire = from.take_wire();
                if (now == flight) {
                    size = wire.size();
                    wire[byte] = static_cast<char>(wire[byte] ^ 0x40);
                }
                to.take_in(wire);
            }
            carry(ends.client, ends.server);
            // The version before the first record, which RFC 8446 wants to be ignored (5.1).
            if (flight == 0 && byte == 2) continue;
            const std::string up = ends.server.take_plain();
            const std::string down = ends.client.take_plain();
            EXPECT_EQ(up, flight == 3 ? "up" : "") << flight << " " << byte;
            EXPECT_EQ(down, "") << flight << " " << byte;
        }
    }
}

TEST(TlsSession, EndsForGarbage) {
    std::mt19937_64 random(store_test::random_seed());
    for (int round = 0; round < 500; ++round) {
        std::string garbage(random() % 3000, '\0');
        std::ranges::generate(garbage, [&] { return static_cast<char>(random()); });
        // Half of them begin as a record does.
        if (round % 2 == 0 && garbage.size() > 3) garbage.replace(0, 3, "\x16\x03\x03", 3);
        Ends ends;
        TlsSession& one = round % 4 < 2 ? ends.client : ends.server;
        one.take_in(garbage);
        EXPECT_FALSE(one.is_established());
        EXPECT_EQ(one.take_plain(), "");
    }
    TlsSession server = context().session(TlsRole::server, "the agent at h2");
    server.take_in("GET / HTTP/1.0\r\n\r\n");
    EXPECT_THAT(server.trouble(), StartsWith("no TLS with the agent at h2: "));
    const std::string first = server.trouble();
    server.take_in("more");
    server.write("never");
    EXPECT_EQ(server.trouble(), first);
    EXPECT_EQ(server.take_plain(), "");
}

TEST(TlsSession, OutlivesItsContextAndMoves) {
    auto one = std::make_unique<TlsContext>(context_of(hex));
    std::vector<TlsSession> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(one->session(TlsRole::client, "it"));
    one.reset();
    for (TlsSession& client : clients) {
        TlsSession server = context().session(TlsRole::server, "it");
        carry(client, server);
        EXPECT_TRUE(client.is_established()) << client.trouble();
    }
}

}  // namespace
}  // namespace ddp::launcher
