// --stdin=all: pipes at both ends, a clock of the test's own.
#include "launcher/agent/attempt/input_relay.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

namespace ddp::launcher {
namespace {

using Time = InputRelay::Time;

struct Ends {
    base::UniqueFd read_end;
    base::UniqueFd write_end;
};

Ends make_source() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

base::UniqueFd worker_of(InputRelay& relay) {
    base::UniqueFd end = relay.add_worker();
    ::fcntl(end.get(), F_SETFL, O_NONBLOCK);
    return end;
}

// What there is now; "<end>" after it when it has ended.
std::string taken(const base::UniqueFd& end) {
    std::string text;
    std::array<char, 65536> bytes;
    for (;;) {
        const ssize_t got = ::read(end.get(), bytes.data(), bytes.size());
        if (got == 0) return text + "<end>";
        if (got < 0) return text;
        text.append(bytes.data(), static_cast<std::size_t>(got));
    }
}

void put(const base::UniqueFd& end, const std::string& text) {
    ASSERT_EQ(::write(end.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

class InputRelayTest : public ::testing::Test {
protected:
    InputRelayTest() { std::signal(SIGPIPE, SIG_IGN); }
    const Time now_{std::chrono::seconds{1000}};
    Ends source_ = make_source();
};

TEST_F(InputRelayTest, GivesEachWorkerACopyAndTheEnd) {
    InputRelay relay(source_.read_end.get());
    const base::UniqueFd first = worker_of(relay);
    const base::UniqueFd second = worker_of(relay);
    put(source_.write_end, "one\n");
    relay.run(now_);
    EXPECT_EQ(taken(first), "one\n");
    EXPECT_EQ(taken(second), "one\n");
    put(source_.write_end, "two");
    source_.write_end.reset();
    relay.run(now_);
    EXPECT_EQ(taken(first), "two<end>");
    EXPECT_EQ(taken(second), "two<end>");
    EXPECT_FALSE(relay.wakes_at());
}

TEST_F(InputRelayTest, LeavesTheFlagsOfTheInputAlone) {
    const InputRelay relay(source_.read_end.get());
    EXPECT_EQ(::fcntl(source_.read_end.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(InputRelayTest, LeavesOutWhoHasClosedItsInput) {
    InputRelay relay(source_.read_end.get());
    base::UniqueFd first = worker_of(relay);
    const base::UniqueFd second = worker_of(relay);
    first.reset();
    put(source_.write_end, "text");
    relay.run(now_);
    EXPECT_EQ(taken(second), "text");
    put(source_.write_end, "more");
    relay.run(now_);
    EXPECT_EQ(taken(second), "more");
}

// Puts so much that nobody who does not read can have it all.
std::size_t fill(const base::UniqueFd& end, InputRelay& relay, const base::UniqueFd& reader,
                 std::string& read, Time now) {
    const std::string block(4096, 'x');
    std::size_t all = 0;
    for (int failures = 0; failures < 3;) {
        if (::write(end.get(), block.data(), block.size()) > 0) {
            all += block.size();
            failures = 0;
        } else {
            ++failures;
        }
        relay.run(now);
        read += taken(reader);
    }
    return all;
}

TEST_F(InputRelayTest, WaitsForASlowWorkerAndNotForEver) {
    InputRelay relay(source_.read_end.get());
    const base::UniqueFd quick = worker_of(relay);
    const base::UniqueFd slow = worker_of(relay);
    std::string read;
    const std::size_t put_in = fill(source_.write_end, relay, quick, read, now_);
    EXPECT_GT(read.size(), InputRelay::spool_bytes);
    EXPECT_LT(read.size(), put_in) << "the writer waits";
    EXPECT_LT(put_in, 4 * InputRelay::spool_bytes) << "bounded";
    EXPECT_EQ(relay.take_notice(), "");
    ASSERT_TRUE(relay.wakes_at());
    EXPECT_EQ(*relay.wakes_at(), now_ + InputRelay::patience);
    relay.run(now_ + InputRelay::patience);
    EXPECT_NE(relay.take_notice().find("rank 1 has not read its input for 5 s"), std::string::npos);
    source_.write_end.reset();
    for (int round = 0; round < 1000 && !read.ends_with("<end>"); ++round) {
        relay.run(now_ + InputRelay::patience);
        read += taken(quick);
    }
    EXPECT_TRUE(read == std::string(put_in, 'x') + "<end>") << read.size() << " of " << put_in;
    EXPECT_TRUE(taken(slow).ends_with("<end>"));
}

TEST_F(InputRelayTest, WaitsAsLongAsNobodyElseWantsMore) {
    InputRelay relay(source_.read_end.get());
    const base::UniqueFd slow = worker_of(relay);
    const base::UniqueFd other = worker_of(relay);
    std::string nothing;
    const base::UniqueFd nobody;
    fill(source_.write_end, relay, nobody, nothing, now_);
    EXPECT_FALSE(relay.wakes_at());
    relay.run(now_ + 10 * InputRelay::patience);
    EXPECT_EQ(relay.take_notice(), "");
    EXPECT_FALSE(taken(slow).ends_with("<end>"));
}

// A pause of all workers alike, such as a checkpoint, is nobody's fault: patience counts from when
// one of them waits for more.
TEST_F(InputRelayTest, IsPatientWithTheOneThatReadsSecond) {
    InputRelay relay(source_.read_end.get());
    const base::UniqueFd first = worker_of(relay);
    const base::UniqueFd second = worker_of(relay);
    std::string read;
    const base::UniqueFd nobody;
    fill(source_.write_end, relay, nobody, read, now_);
    const Time later = now_ + 10 * InputRelay::patience;
    for (int round = 0; round < 100; ++round) {
        read += taken(first);
        relay.run(later);
    }
    EXPECT_EQ(relay.take_notice(), "");
    ASSERT_TRUE(relay.wakes_at());
    EXPECT_EQ(*relay.wakes_at(), later + InputRelay::patience);
    relay.run(later + InputRelay::patience);
    EXPECT_NE(relay.take_notice().find("rank 1 has not read"), std::string::npos);
    EXPECT_TRUE(taken(second).ends_with("<end>"));
}

TEST_F(InputRelayTest, ReadsAFileFromWhereItIs) {
    std::FILE* const file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    std::fputs("beforeafter", file);
    std::fflush(file);
    ::lseek(::fileno(file), 6, SEEK_SET);
    InputRelay relay(::fileno(file));
    const base::UniqueFd first = worker_of(relay);
    ASSERT_TRUE(relay.wakes_at());
    relay.run(now_);
    EXPECT_EQ(taken(first), "after<end>");
    EXPECT_FALSE(relay.wakes_at());
    std::fclose(file);
}

}  // namespace
}  // namespace ddp::launcher
