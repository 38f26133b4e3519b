// A host's part of a job, as bytes: it comes back as it was, and nothing else is taken for one.
#include "launcher/hosts/start/job_description.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/seed.hpp"

namespace ddp::launcher {
namespace {

using ::testing::HasSubstr;

JobDescription a_job() {
    return {.greeting = "ddp-launch begins 00ff",
            .token = std::nullopt,
            .folder = "/home/user/a folder",
            .environment = {"PATH=/usr/bin:/bin", "EMPTY=", "TWO=a=b", "LINES=a\nb"},
            .options = {"--nnodes=2", "--node-rank=1", "--tty"},
            .command = {"./train", "", "--", "--lr=0.1", "\xff"}};
}

std::vector<FromStarter> all_messages() {
    JobDescription with_token = a_job();
    with_token.token = JobToken::parse(std::string(64, 'a'));
    with_token.shows_status = true;
    return {JobDescription{}, a_job(), with_token, PassedSignal{2}, PassedSignal{64}};
}

std::string refusal_of(std::string_view frame) {
    try {
        decode_from_starter(frame);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "taken";
}

TEST(JobDescription, ComesBackAsItWas) {
    for (const FromStarter& message : all_messages()) {
        EXPECT_EQ(decode_from_starter(encode(message)), message);
    }
}

TEST(JobDescription, CutShortOrLongerIsRefused) {
    for (const FromStarter& message : all_messages()) {
        const std::string frame = encode(message);
        for (std::size_t size = 0; size < frame.size(); ++size) {
            EXPECT_THROW(decode_from_starter(frame.substr(0, size)), UsageError);
        }
        EXPECT_THAT(refusal_of(frame + '\0'), HasSubstr("too long"));
    }
}

TEST(StatusLineForStarter, ComesBackAsItWas) {
    const StatusMessage status{.restarts = 1,
                               .step = 1'000'000'000'000,
                               .steps_per_second = 2.5,
                               .hosts = 3,
                               .workers = 24,
                               .running = 23};
    const std::string line = status_line_for_starter("ddp-launch begins 7", status);
    EXPECT_EQ(status_in_line("ddp-launch begins 7", line), status);
    EXPECT_EQ(status_in_line("ddp-launch begins 8", line), std::nullopt);
    EXPECT_EQ(end_in_line("ddp-launch begins 7", end_line_for_starter("ddp-launch begins 7", 0)),
              0);
    EXPECT_EQ(end_in_line("ddp-launch begins 7", line), std::nullopt);
    EXPECT_EQ(status_in_line("ddp-launch begins 7", "ddp-launch begins 7 status 1 2\n"),
              std::nullopt);
}

TEST(JobDescription, WithWhatNoProgramCanBeGivenIsRefused) {
    JobDescription job = a_job();
    job.command.back() = std::string("a\0b", 3);
    EXPECT_THAT(refusal_of(encode(job)), HasSubstr("zero byte"));
    for (const char* entry : {"NAME", "=value", ""}) {
        job = a_job();
        job.environment.emplace_back(entry);
        EXPECT_THAT(refusal_of(encode(job)), HasSubstr("no name"));
    }
    for (const int signal : {-1, 0, 65}) {
        EXPECT_THAT(refusal_of(encode(PassedSignal{signal})), HasSubstr("a signal is none"));
    }
    EXPECT_THAT(refusal_of("\x03"), HasSubstr("it is none"));
}

TEST(JobDescription, OfAnotherVersionIsRefusedWithBoth) {
    std::string frame = encode(a_job());
    frame[1] = 9;
    EXPECT_THAT(refusal_of(frame), HasSubstr("version 9, and this ddp-launch knows version 2"));
}

TEST(JobDescription, OfChangedBytesIsRefusedOrAnotherOne) {
    std::mt19937_64 random(store_test::random_seed());
    const std::vector<FromStarter> messages = all_messages();
    for (int i = 0; i < 20'000; ++i) {
        std::string frame = encode(messages[random() % messages.size()]);
        for (auto changes = 1 + random() % 3; changes > 0; --changes) {
            frame[random() % frame.size()] = static_cast<char>(random());
        }
        try {
            EXPECT_EQ(encode(decode_from_starter(frame)), frame);
        } catch (const UsageError&) {
        }
    }
}

}  // namespace
}  // namespace ddp::launcher
