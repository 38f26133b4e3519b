// Where log files lie, and what they do on a full disk.
#include "launcher/logs/log_files.hpp"

#include "launcher/launch_fixture.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "launcher/logs/content_of.hpp"

namespace ddp::launcher {
namespace {

using testing::content_of;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(LogTree, ItsLayoutIsTorchruns) {
    const testing::TemporaryFolder folder;
    const LogTree tree(folder.path() + "/new/logs", "my/job");
    ASSERT_TRUE(tree.wanted());
    EXPECT_EQ(folder.names().size(), 0U) << "made before it was needed";
    tree.make_folder(2, 13);
    tree.open(2, 13, Stream::out).write("out\r\n");
    tree.open(2, 13, Stream::err).write("err");
    EXPECT_THAT(tree.root().substr(folder.path().size()),
                MatchesRegex("/new/logs/my_job_[0-9a-f]{8}"));
    const std::string rank_folder = tree.root() + "/attempt_2/13";
    EXPECT_EQ(content_of(rank_folder + "/stdout.log"), "out\r\n");
    EXPECT_EQ(content_of(rank_folder + "/stderr.log"), "err");
    EXPECT_EQ(tree.error_files(2).of(13), rank_folder + "/error.json");
}

TEST(LogTree, TwoJobsOfOneNameHaveTwoTrees) {
    EXPECT_NE(LogTree("logs", "job").root(), LogTree("logs", "job").root());
    EXPECT_THAT(LogTree("logs", "").root(), MatchesRegex("/.*/logs/none_[0-9a-f]{8}"));
}

TEST(LogTree, WithoutAFolderOrWithDevNullThereIsNone) {
    EXPECT_FALSE(LogTree("", "job").wanted());
    EXPECT_FALSE(LogTree("/dev/null", "job").wanted());
}

TEST(LogTree, AFolderThatCannotBeIsNamed) {
    const testing::TemporaryFolder folder;
    std::ofstream(folder.path() + "/file") << "in the way";
    const LogTree tree(folder.path() + "/file", "job");
    try {
        tree.make_folder(0, 0);
        FAIL() << "no exception";
    } catch (const SystemError& error) {
        EXPECT_THAT(error.what(), HasSubstr(tree.root()));
        EXPECT_THAT(error.what(), HasSubstr("--log-dir"));
    }
}

// A limit stands for the end of the disk.
TEST(LogFile, AFullDiskIsSaidOnceAndDoesNotThrow) {
    const testing::TemporaryFolder folder;
    LogFile file(folder.path() + "/log");
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit full = before;
    full.rlim_cur = 4;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    file.write("kept");
    const std::string problem_before = file.take_problem();
    file.write("lost");
    const std::string problem = file.take_problem();
    file.write("lost, too");
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, SIG_DFL);
    EXPECT_EQ(problem_before, "");
    EXPECT_THAT(problem, HasSubstr("cannot write " + folder.path() + "/log: File too large"));
    EXPECT_EQ(file.take_problem(), "");
    EXPECT_EQ(content_of(folder.path() + "/log"), "kept");
}

TEST(LogFile, WhatLiesInItsPlaceIsRefused) {
    const testing::TemporaryFolder folder;
    const std::string path = folder.path() + "/log";
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    const base::UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const std::string mine = folder.path() + "/mine";
    std::ofstream(mine) << "mine";
    const std::string link = folder.path() + "/link";
    ASSERT_EQ(::symlink("mine", link.c_str()), 0);
    const std::string to_nothing = folder.path() + "/to_nothing";
    ASSERT_EQ(::symlink("made", to_nothing.c_str()), 0);
    for (const std::string& taken : {path, mine, link, to_nothing}) {
        try {
            const LogFile file(taken);
            FAIL() << taken << " was taken for a log file";
        } catch (const SystemError& error) {
            EXPECT_EQ(error.code(), EEXIST);
            EXPECT_THAT(error.what(), HasSubstr(taken));
        }
    }
    EXPECT_EQ(content_of(mine), "mine");
    EXPECT_NE(::access((folder.path() + "/made").c_str(), F_OK), 0);
}

// Whatever umask allows.
TEST(LogTree, NobodyElseMayWriteInIt) {
    const testing::TemporaryFolder folder;
    const LogTree tree(folder.path(), "job");
    const mode_t before = ::umask(0);
    tree.make_folder(0, 3);
    tree.open(0, 3, Stream::out);
    ::umask(before);
    const auto mode_of = [&](const std::string& name) {
        struct stat status {};
        EXPECT_EQ(::lstat((tree.root() + name).c_str(), &status), 0) << name;
        return status.st_mode & 07777;
    };
    for (const char* name : {"", "/attempt_0", "/attempt_0/3"}) {
        EXPECT_EQ(mode_of(name), 0755U) << name;
    }
    EXPECT_EQ(mode_of("/attempt_0/3/stdout.log"), 0644U);
}

TEST(LogTree, UmaskDecidesWhoMayReadIt) {
    const testing::TemporaryFolder folder;
    const LogTree tree(folder.path(), "job");
    const mode_t before = ::umask(077);
    tree.make_folder(0, 0);
    tree.open(0, 0, Stream::err);
    ::umask(before);
    struct stat status {};
    ASSERT_EQ(::stat((tree.root() + "/attempt_0/0/stderr.log").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600U);
}

TEST(LogFile, WithoutAFileItTakesEverything) {
    LogFile file;
    file.write("nowhere");
    EXPECT_EQ(file.take_problem(), "");
}

TEST(LogFile, ItAppendsToWhatAWorkerHasCut) {
    const testing::TemporaryFolder folder;
    const std::string path = folder.path() + "/log";
    LogFile file(path);
    file.write("one\n");
    ASSERT_EQ(::truncate(path.c_str(), 0), 0);
    file.write("two\n");
    EXPECT_EQ(content_of(path), "two\n");
}

}  // namespace
}  // namespace ddp::launcher
