// --report and --trace: who writes, and what is said where that cannot be done.
#include "launcher/timeline/timeline_files.hpp"

#include "launcher/launch_fixture.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Files : public ::testing::Test {
protected:
    std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
    std::string refusal() const {
        try {
            check_timeline_files(options_.logs);
        } catch (const UsageError& error) {
            return error.what();
        }
        return "";
    }
    std::vector<std::string> write() {
        TimelineFiles files(options_);
        if (has_attempt_) files.timeline().begin(0);
        return files.write([](auto until) { std::this_thread::sleep_until(until); },
                           [this] { return most_time_; });
    }

    testing::TemporaryFolder folder_;
    Options options_;
    std::chrono::milliseconds most_time_ = 60s;
    bool has_attempt_ = true;
};

TEST_F(Files, AreWrittenWhereTheyAreWanted) {
    EXPECT_THAT(write(), IsEmpty());
    options_.logs.report_page = path("a.html");
    options_.logs.trace = path("b.json");
    EXPECT_EQ(refusal(), "");
    const ::mode_t before = ::umask(027);
    EXPECT_THAT(write(), ElementsAre("report: " + path("a.html"), "trace: " + path("b.json")));
    ::umask(before);
    for (const char* const name : {"a.html", "b.json"}) {
        struct stat status {};
        ASSERT_EQ(::stat(path(name).c_str(), &status), 0) << name;
        EXPECT_GT(status.st_size, 20);
        EXPECT_EQ(status.st_mode & 0777, 0640U) << "as the umask says";
    }
}

TEST_F(Files, AreNotWrittenWhereAnotherHostHasTheReport) {
    options_.logs.report_page = path("a.html");
    has_attempt_ = false;
    EXPECT_THAT(write(), IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(path("a.html")));
}

TEST_F(Files, AreRefusedBeforeTheJobWhereTheyCannotBeWritten) {
    options_.logs.trace = path("nowhere/b.json");
    EXPECT_EQ(refusal(),
              "--trace=" + path("nowhere/b.json") + ": there is no directory " + path("nowhere"));
    options_.logs.trace = "";
    std::filesystem::create_directory(path("d.html"));
    options_.logs.report_page = path("d.html");
    EXPECT_THAT(refusal(), HasSubstr("is no file, but a directory"));
    options_.logs.report_page = "";
    options_.logs.trace = "/dev/null";
    EXPECT_THAT(refusal(), HasSubstr("a device")) << "which it would replace";
    options_.logs.trace = "";
    if (::geteuid() == 0) return;  // who may write anywhere
    std::filesystem::create_directory(path("closed"));
    ::chmod(path("closed").c_str(), 0500);
    options_.logs.report_page = path("closed/a.html");
    EXPECT_THAT(refusal(), HasSubstr("cannot write into"));
}

TEST_F(Files, ThatCannotBeWrittenAtTheEndAreNamed) {
    options_.logs.report_page = path("gone/a.html");
    options_.logs.trace = path("b.json");
    EXPECT_THAT(write(), ElementsAre(AllOf(HasSubstr("cannot write the report"),
                                           HasSubstr("No such file or directory")),
                                     "trace: " + path("b.json")));
}

// Whoever is faster: there is a file, or nothing.
TEST_F(Files, AreWholeOrGivenUpWhenTheirTimeIsOver) {
    options_.logs.report_page = path("a.html");
    most_time_ = 0ms;
    for (int round = 0; round < 20; ++round) {
        const std::string text = write().at(0);
        EXPECT_THAT(text, AnyOf("report: " + path("a.html"), EndsWith(": it takes too long")));
        if (std::filesystem::exists(path("a.html"))) std::filesystem::remove(path("a.html"));
        // The one that removes what was begun may take a moment.
        for (int i = 0; i < 5000 && !std::filesystem::is_empty(folder_.path()); ++i) {
            std::this_thread::sleep_for(1ms);
        }
        ASSERT_TRUE(std::filesystem::is_empty(folder_.path()));
    }
}

}  // namespace
}  // namespace ddp::launcher
