// The log writer through the agent's end of it. A writer that is stopped (SIGSTOP) is to the agent
// what a file system is that takes nothing.
#include "launcher/logs/log_writer.hpp"

#include "launcher/launch_fixture.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>

#include "launcher/logs/content_of.hpp"

namespace ddp::launcher {
namespace {

using testing::content_of;
using ::testing::HasSubstr;

class LogWriterTest : public ::testing::Test {
protected:
    void SetUp() override { writer_.start(tree_); }
    void TearDown() override {
        writer_.close();
        writer_.kill();
        EXPECT_TRUE(until([&] { return writer_.reap(); }));
    }
    std::string path_of(int rank, const char* name) const {
        return tree_.root() + "/attempt_0/" + std::to_string(rank) + "/" + name;
    }
    bool until(const std::function<bool()>& condition) {
        const auto deadline = base::Deadline::after(testing::patience);
        while (!condition()) {
            if (deadline.passed()) return false;
            pollfd entry{writer_.fd(), POLLIN, 0};
            ::poll(&entry, 1, 1);
            writer_.run_ready();
        }
        return true;
    }
    bool all_completed() {
        return until([&] { return writer_.completed(writer_.asked()); });
    }
    void stop() {
        ASSERT_EQ(::kill(writer_.pid(), SIGSTOP), 0);
        siginfo_t info{};
        ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(writer_.pid()), &info, WSTOPPED), 0);
    }
    void become_stuck() {
        stop();
        writer_.append(0, Stream::out, "waits\n");
        writer_.look_at_time(LogWriter::Clock::now() + LogWriter::stuck_time);
    }

    testing::TemporaryFolder folder_;
    LogTree tree_{folder_.path() + "/logs", "job"};
    LogWriter writer_;
};

TEST_F(LogWriterTest, WritesWhatItIsGivenWhereItBelongs) {
    writer_.open(2, 0);
    writer_.append(0, Stream::out, "out\r\n");
    writer_.append(1, Stream::err, "err");
    writer_.write_report("{}\n");
    ASSERT_TRUE(all_completed());
    EXPECT_EQ(content_of(path_of(0, "stdout.log")), "out\r\n");
    EXPECT_EQ(content_of(path_of(1, "stderr.log")), "err");
    EXPECT_EQ(content_of(tree_.report_file()), "{}\n");
    EXPECT_EQ(writer_.take_open_problem() + writer_.take_news() + writer_.describe_loss(), "");
}

TEST_F(LogWriterTest, WhatIsSentIsWrittenBeforeItEnds) {
    writer_.open(1, 0);
    ASSERT_TRUE(all_completed());
    stop();
    const std::string text(100'000, 'x');
    writer_.append(0, Stream::out, text);
    ASSERT_FALSE(writer_.wants_to_send()) << "all of it is in the socket";
    const pid_t pid = writer_.pid();
    writer_.close();
    ::kill(pid, SIGCONT);
    EXPECT_TRUE(until([&] { return writer_.reap(); }));
    EXPECT_EQ(content_of(path_of(0, "stdout.log")).size(), text.size());
    EXPECT_EQ(writer_.take_news(), "") << "it was asked to end";
}

TEST_F(LogWriterTest, StopSignalsDoNotEndIt) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}) {
        ::kill(writer_.pid(), signal);
    }
    writer_.open(1, 0);
    EXPECT_TRUE(all_completed());
}

TEST_F(LogWriterTest, AFolderThatCannotBeIsNamed) {
    std::ofstream(folder_.path() + "/logs") << "in the way";
    writer_.open(1, 0);
    ASSERT_TRUE(all_completed());
    EXPECT_THAT(writer_.take_open_problem(), HasSubstr("see --log-dir"));
}

TEST_F(LogWriterTest, BeyondItsBoundItIsFullAndLosesNothing) {
    writer_.open(1, 0);
    ASSERT_TRUE(all_completed());
    stop();
    const std::string piece(64 * 1024, 'x');
    std::size_t given = 0;
    for (; !writer_.full(); given += piece.size()) writer_.append(0, Stream::out, piece);
    EXPECT_LE(given, LogWriter::most_waiting_bytes + piece.size());
    ::kill(writer_.pid(), SIGCONT);
    ASSERT_TRUE(all_completed());
    EXPECT_FALSE(writer_.full());
    EXPECT_EQ(content_of(path_of(0, "stdout.log")).size(), given);
    EXPECT_EQ(writer_.describe_loss(), "");
}

TEST_F(LogWriterTest, OneThatTakesNothingCostsLinesWhichAreCountedAndSaidOnce) {
    writer_.open(1, 0);
    ASSERT_TRUE(all_completed());
    become_stuck();
    EXPECT_TRUE(writer_.unresponsive());
    EXPECT_FALSE(writer_.full()) << "nobody is held up any longer";
    const std::string news = writer_.take_news();
    EXPECT_THAT(news, HasSubstr("--log-dir has taken nothing for 5 s"));
    EXPECT_EQ(news.find('\n'), news.npos);
    writer_.append(0, Stream::out, "lost\nlost\n");
    EXPECT_EQ(writer_.describe_loss(), "3 lines are missing in the files of --log-dir");
    EXPECT_EQ(writer_.next_due(), std::nullopt) << "nothing to wake up for";

    ::kill(writer_.pid(), SIGCONT);
    ASSERT_TRUE(all_completed());
    EXPECT_FALSE(writer_.unresponsive());
    writer_.append(0, Stream::out, "again\n");
    become_stuck();
    EXPECT_EQ(writer_.take_news(), "") << "said once";
    ::kill(writer_.pid(), SIGCONT);
    ASSERT_TRUE(all_completed());
    EXPECT_EQ(content_of(path_of(0, "stdout.log")), "waits\nagain\nwaits\n");
    EXPECT_EQ(writer_.describe_loss(), "2 lines are missing in the files of --log-dir");
}

TEST_F(LogWriterTest, WhoIsInAHurryDoesNotWaitForOneThatTakesNothing) {
    writer_.open(1, 0);
    ASSERT_TRUE(all_completed());
    stop();
    writer_.append(0, Stream::out, "lost\n");
    const auto begin = LogWriter::Clock::now();
    const bool hurried = true;
    const auto wait = [&](const auto&) { ::poll(nullptr, 0, 1); };
    EXPECT_EQ(writer_.finish(wait, hurried), "1 line is missing in the files of --log-dir");
    EXPECT_LT(LogWriter::Clock::now() - begin, std::chrono::seconds{4});
}

TEST_F(LogWriterTest, ItsEarlyEndIsSaid) {
    writer_.open(1, 0);
    ASSERT_TRUE(all_completed());
    const std::string pid = std::to_string(writer_.pid());
    writer_.kill();
    ASSERT_TRUE(until([&] { return writer_.reap(); }));
    EXPECT_THAT(writer_.take_news(), HasSubstr("(pid " + pid + ") ended early (SIGKILL"));
    writer_.append(0, Stream::out, "lost\n");
    EXPECT_EQ(writer_.describe_loss(), "1 line is missing in the files of --log-dir");
    EXPECT_EQ(writer_.pid(), 0) << "the number may be another's";
}

TEST_F(LogWriterTest, ErrorFilesAreCopiedOutOfTheTreeButNoPipe) {
    writer_.open(3, 0);
    ASSERT_TRUE(all_completed());
    std::ofstream(path_of(0, "error.json")) << "{\"message\": \"x\"}";
    ASSERT_EQ(::mkfifo(path_of(1, "error.json").c_str(), 0600), 0);
    writer_.copy_error_files(3, 0, folder_.path());
    ASSERT_TRUE(all_completed());
    EXPECT_EQ(content_of(error_files_in(folder_.path()).of(0)), "{\"message\": \"x\"}");
    EXPECT_THAT(folder_.names(), ::testing::UnorderedElementsAre("logs", "rank_0.json"));
}

TEST(LogRequests, SurviveTheSocket) {
    const auto open =
        std::get<OpenRequest>(decode_log_request(encode(LogRequest{OpenRequest{3, 1}})));
    EXPECT_EQ(open.workers, 3);
    EXPECT_EQ(open.attempt, 1);
    const AppendRequest append{2, Stream::err, std::string("a\0b", 3)};
    const auto read = std::get<AppendRequest>(decode_log_request(encode(LogRequest{append})));
    EXPECT_EQ(read.local_rank, 2);
    EXPECT_EQ(read.stream, Stream::err);
    EXPECT_EQ(read.bytes, append.bytes);
    const auto copy = std::get<CopyErrorsRequest>(
        decode_log_request(encode(LogRequest{CopyErrorsRequest{4, 2, "/tmp/x"}})));
    EXPECT_EQ(copy.workers, 4);
    EXPECT_EQ(copy.attempt, 2);
    EXPECT_EQ(copy.folder, "/tmp/x");
    EXPECT_THROW(decode_log_request(std::string_view("\x09\0\0\0\0", 5)), Error);
    EXPECT_THROW(decode_log_answer("\x09"), Error);
}

}  // namespace
}  // namespace ddp::launcher
