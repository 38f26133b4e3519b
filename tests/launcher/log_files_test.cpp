// Where log files lie, and what they do on a full disk.
#include "launcher/log_files.hpp"

#include "launcher/launch_fixture.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

namespace ddp::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

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

TEST(LogFile, AFullDiskIsSaidOnceAndDoesNotThrow) {
    LogFile file("/dev/full");
    EXPECT_EQ(file.take_problem(), "");
    file.write("lost");
    EXPECT_THAT(file.take_problem(), HasSubstr("cannot write /dev/full: No space left on device"));
    file.write("lost, too");
    EXPECT_EQ(file.take_problem(), "");
}

TEST(LogFile, WithoutAFileItTakesEverything) {
    LogFile file;
    file.write("nowhere");
    EXPECT_EQ(file.take_problem(), "");
}

TEST(LogFile, ItAppends) {
    const testing::TemporaryFolder folder;
    const std::string path = folder.path() + "/log";
    LogFile(path).write("one\n");
    LogFile(path).write("two\n");
    EXPECT_EQ(content_of(path), "one\ntwo\n");
}

}  // namespace
}  // namespace ddp::launcher
