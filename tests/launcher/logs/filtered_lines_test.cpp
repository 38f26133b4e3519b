// Lines that are kept once more: which, where, and with what before them.
#include "launcher/logs/filtered_lines.hpp"

#include "launcher/launch_fixture.hpp"
#include "launcher/parse_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;
using testing::parse;
using testing::Words;

class Filtered : public ::testing::Test {
protected:
    FilteredLines lines_of(Words options) {
        options.emplace_back("x");
        for (int rank = 0; rank < 2; ++rank) tree_.make_folder(0, rank);
        FilteredLines lines(parse(options));
        lines.open(tree_, 2, 0);
        return lines;
    }
    std::string text(const std::string& name) const {
        std::ifstream file(tree_.root() + "/" + name, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    bool exists(const std::string& name) const {
        return std::filesystem::exists(tree_.root() + "/" + name);
    }

    testing::TemporaryFolder folder_;
    LogTree tree_{folder_.path() + "/logs", "job"};
};

const std::string out_file = "attempt_0/filtered_stdout.log";
const std::string err_file = "attempt_0/filtered_stderr.log";

TEST_F(Filtered, AreThoseOfAllRanksThatHoldOneOfTheTexts) {
    FilteredLines lines =
        lines_of({"-n2", "-t3", "--role=w", "--duplicate-stdout-filters=apple,orange"});
    lines.append(0, Stream::out, "an apple\na pear\nan or");
    lines.append(1, Stream::out, "two oranges\n");
    lines.append(0, Stream::out, "ange\n");
    lines.append(1, Stream::err, "an apple on stderr\n");
    EXPECT_EQ(text(out_file), "[w0]:an apple\n[w1]:two oranges\n[w0]:an orange\n");
    EXPECT_FALSE(exists(err_file));
    EXPECT_EQ(lines.take_problem(), "");
}

TEST_F(Filtered, AreThoseOfTeedAndShownStreamsAlone) {
    FilteredLines lines = lines_of(
        {"-n2", "--tee=0:1,1:2", "--duplicate-stdout-filters=a", "--duplicate-stderr-filters=a"});
    for (const int rank : {0, 1}) {
        lines.append(rank, Stream::out, "a\n");
        lines.append(rank, Stream::err, "a\n");
    }
    EXPECT_EQ(text(out_file), "[default0]:a\n");
    EXPECT_EQ(text(err_file), "[default1]:a\n");
}

TEST_F(Filtered, LeaveOutRanksThatAreNotShown) {
    FilteredLines lines =
        lines_of({"-n2", "-t3", "--local-ranks-filter=1", "--duplicate-stdout-filters=a"});
    lines.append(0, Stream::out, "a\n");
    lines.append(1, Stream::out, "a\n");
    EXPECT_EQ(text(out_file), "[default1]:a\n");
}

TEST_F(Filtered, EndWithAnUnfinishedLineAndBeginAnewWithAnAttempt) {
    FilteredLines lines = lines_of({"-n2", "-t3", "--duplicate-stdout-filters=a"});
    lines.append(0, Stream::out, "the last words");
    EXPECT_EQ(text(out_file), "");
    tree_.make_folder(1, 0);
    lines.open(tree_, 2, 1);
    EXPECT_EQ(text(out_file), "[default0]:the last words\n");
    lines.append(1, Stream::out, "again");
    lines.finish();
    EXPECT_EQ(text("attempt_1/filtered_stdout.log"), "[default1]:again\n");
}

TEST(FilterTexts, StandBetweenCommas) {
    const auto texts = [](const std::string& given) {
        return parse({"--duplicate-stdout-filters=" + given, "x"}).logs.duplicate_stdout_filters;
    };
    EXPECT_THAT(texts("apple"), ElementsAre("apple"));
    EXPECT_THAT(texts(" apple , an orange"), ElementsAre("apple", "an orange"));
    EXPECT_THAT(texts("a,,b,c"), ElementsAre("a,b", "c"));
    EXPECT_THAT(texts(",,"), ElementsAre(","));
    EXPECT_THAT(texts(""), ElementsAre());
}

// The launcher itself: the files are the log writer's.
TEST_F(Filtered, LieBesideTheFoldersOfTheRanks) {
    const testing::TemporaryFolder work;
    testing::Launch job(
        work, {"-n2", "-t3", "--log-dir=" + folder_.path(), "--duplicate-stderr-filters=err 1",
               "bash", "-c", "echo out $RANK; echo err $RANK >&2; printf 'err 1 ends' >&2"});
    const testing::LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::string> names;
    std::string path;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
        const std::string name = entry.path().filename();
        if (!name.starts_with("filtered_")) continue;
        names.push_back(name);
        path = entry.path();
    }
    EXPECT_THAT(names, ElementsAre("filtered_stderr.log"));
    std::ifstream file(path);
    std::vector<std::string> lines = testing::lines_of({std::istreambuf_iterator<char>(file), {}});
    std::sort(lines.begin(), lines.end());
    EXPECT_THAT(lines,
                ElementsAre("[default0]:err 1 ends", "[default1]:err 1", "[default1]:err 1 ends"));
}

}  // namespace
}  // namespace ddp::launcher
