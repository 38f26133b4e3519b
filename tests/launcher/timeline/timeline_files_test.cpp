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
using ::testing::ElementsAre;
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
        return files.write(
            "", [](auto until) { std::this_thread::sleep_until(until); },
            [this] { return is_hurried_; });
    }

    testing::TemporaryFolder folder_;
    Options options_;
    bool is_hurried_ = false;
};

TEST_F(Files, AreWrittenWhereTheyAreWanted) {
    EXPECT_THAT(write(), IsEmpty());
    options_.logs.report_page = path("a.html");
    options_.logs.trace = path("b.json");
    EXPECT_EQ(refusal(), "");
    EXPECT_THAT(write(), ElementsAre("report: " + path("a.html"), "trace: " + path("b.json")));
    for (const char* const name : {"a.html", "b.json"}) {
        struct stat status {};
        ASSERT_EQ(::stat(path(name).c_str(), &status), 0) << name;
        EXPECT_GT(status.st_size, 20);
        EXPECT_EQ(status.st_mode & 0777, 0644U) << "others may be shown it";
    }
}

TEST_F(Files, AreRefusedBeforeTheJobWhereTheyCannotBeWritten) {
    options_.logs.trace = path("nowhere/b.json");
    EXPECT_EQ(refusal(),
              "--trace=" + path("nowhere/b.json") + ": there is no directory " + path("nowhere"));
    options_.logs.trace = "";
    std::filesystem::create_directory(path("d.html"));
    options_.logs.report_page = path("d.html");
    EXPECT_THAT(refusal(), HasSubstr("is a directory"));
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

TEST_F(Files, AreGivenUpForAUserInAHurry) {
    options_.logs.report_page = path("a.html");
    is_hurried_ = true;
    EXPECT_THAT(write(), ElementsAre(path("a.html") + " was not written: that took too long"));
}

}  // namespace
}  // namespace ddp::launcher
