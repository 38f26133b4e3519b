// --flight-recorder: who writes, and what is said where that cannot be done.
#include "launcher/timeline/flight_files.hpp"

#include "launcher/launch_fixture.hpp"
#include "launcher/logs/content_of.hpp"
#include "launcher/sleeping_worker.hpp"
#include "launcher/timeline/flight_reader.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class FilesOfTwoRanks : public ::testing::Test {
protected:
    FilesOfTwoRanks() {
        options_.flight_prefix = folder_.path() + "/fr/rank_";
        std::filesystem::create_directory(folder_.path() + "/fr");
        for (int rank = 0; rank < 2; ++rank) {
            workers_.push_back(testing::start_sleeping_worker(rank));
        }
    }
    ~FilesOfTwoRanks() override {
        for (Worker& worker : workers_) testing::end_worker(worker);
    }

    void begin(FlightFiles& files) { files.begin(pages_, workers_, 4, 8, "on SIGUSR1"); }
    static std::string result_of(FlightFiles& files) {
        for (;;) {
            if (auto news = files.look()) return *news;
            std::this_thread::sleep_until(files.next().value());
        }
    }
    std::string prefix() const { return options_.flight_prefix; }
    std::size_t files_there() const {
        return static_cast<std::size_t>(
            std::distance(std::filesystem::directory_iterator(folder_.path() + "/fr"), {}));
    }

    static bool has_no_children(const FlightFiles& files) {
        for (int i = 0; i < 20'000 && !files.children().empty(); ++i) {
            std::this_thread::sleep_for(1ms);
        }
        return files.children().empty();
    }

    testing::TemporaryFolder folder_;
    LogOptions options_;
    contract::ControlRegion pages_ = contract::ControlRegion::create(2, 0);
    std::vector<Worker> workers_;
};

TEST_F(FilesOfTwoRanks, AreWrittenWhileTheyRun) {
    pages_.page(1).pid = 4711;
    FlightFiles files(options_);
    EXPECT_EQ(files.next(), std::nullopt);
    begin(files);
    EXPECT_TRUE(files.is_busy());
    EXPECT_EQ(result_of(files), "flight records on SIGUSR1: " + prefix() + "4 to rank_5");
    EXPECT_FALSE(files.is_busy());
    EXPECT_EQ(files.look(), std::nullopt);
    EXPECT_EQ(testing::read_flight_record(testing::content_of(prefix() + "5"))["pid"], 4711);
    EXPECT_EQ(files_there(), 2U) << "nothing half-written";
}

TEST_F(FilesOfTwoRanks, AreWrittenAnewOneAfterTheOther) {
    FlightFiles files(options_);
    begin(files);
    files.begin(pages_, workers_, 40, 80, "of the hang");  // which it is too busy for
    EXPECT_THAT(result_of(files), StartsWith("flight records on SIGUSR1: "));
    begin(files);
    EXPECT_THAT(result_of(files), StartsWith("flight records on SIGUSR1: "));
    EXPECT_EQ(files_there(), 2U);
}

TEST_F(FilesOfTwoRanks, AreNotWrittenWhereTheyAreNotWanted) {
    options_.flight_prefix = "";
    FlightFiles files(options_);
    EXPECT_FALSE(files.is_asked_by(SIGUSR1));
    begin(files);
    EXPECT_FALSE(files.is_busy());
    EXPECT_EQ(files.look(), std::nullopt);
}

TEST_F(FilesOfTwoRanks, AreAskedForByTheSignalAlone) {
    options_.flight_signal = SIGUSR2;
    EXPECT_TRUE(FlightFiles(options_).is_asked_by(SIGUSR2));
    EXPECT_FALSE(FlightFiles(options_).is_asked_by(SIGUSR1));
}

TEST_F(FilesOfTwoRanks, SayWhatIsInTheirWay) {
    std::filesystem::remove_all(folder_.path() + "/fr");
    FlightFiles files(options_);
    begin(files);
    EXPECT_EQ(result_of(files), "cannot write the flight records on SIGUSR1: " + prefix() +
                                    "4: No such file or directory");
    std::filesystem::create_directory(folder_.path() + "/fr");
    begin(files);
    EXPECT_THAT(result_of(files), StartsWith("flight records ")) << "the next time they are there";
}

// A process is not to be taken for one that a worker has left.
TEST_F(FilesOfTwoRanks, NameTheirChildren) {
    FlightFiles files(options_);
    EXPECT_THAT(files.children(), IsEmpty());
    // It may have ended by then, but not each time.
    std::size_t seen = 0;
    for (int i = 0; i < 200 && seen == 0; ++i) {
        begin(files);
        seen = files.children().size();
        result_of(files);
        EXPECT_TRUE(has_no_children(files));
    }
    EXPECT_EQ(seen, 1U);
}

TEST_F(FilesOfTwoRanks, AreGivenUpWhenItTakesTooLong) {
    FlightFiles files(options_);
    files.begin(pages_, workers_, 4, 8, "on SIGUSR1", 0ms);
    EXPECT_THAT(result_of(files),
                AnyOf("cannot write the flight records on SIGUSR1: it takes too long",
                      StartsWith("flight records on SIGUSR1: ")));
    EXPECT_FALSE(files.is_busy());
    EXPECT_TRUE(has_no_children(files));
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/fr")) {
        EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
    }
}

TEST_F(FilesOfTwoRanks, AreWrittenThoughOneOfThemCannotBe) {
    std::filesystem::create_directories(prefix() + "4/in_the_way");
    FlightFiles files(options_);
    begin(files);
    EXPECT_EQ(result_of(files), "cannot write the flight records on SIGUSR1: " + prefix() +
                                    "4: Is a directory; 1 others are");
    EXPECT_TRUE(std::filesystem::is_regular_file(prefix() + "5"));
}

TEST(ForkedWriter, IsEndedWhereItHangs) {
    ForkedWriter writer([](const ForkedWriter::Tell& tell) {
        tell("begun");
        ::pause();
    });
    std::optional<std::string> message;
    while (!message) message = writer.receive();
    EXPECT_EQ(message, "begun");
    EXPECT_EQ(writer.receive(), std::nullopt);
    EXPECT_FALSE(writer.has_ended());
    const pid_t pid = writer.living();
    EXPECT_GT(pid, 0);
    writer.end();
    EXPECT_EQ(writer.living(), 0);
    EXPECT_NE(::kill(pid, 0), 0);
    EXPECT_TRUE(writer.has_ended());
}

TEST_F(FilesOfTwoRanks, AreRefusedBeforeTheJobWhereTheyCannotBeWritten) {
    const auto refusal = [&](const std::string& value,
                             const std::vector<int>& signals = {}) -> std::string {
        Options options;
        options.logs.flight_prefix = value;
        options.stop.signals_to_handle = signals;
        try {
            check_flight_files(options);
        } catch (const UsageError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(refusal(""), "");
    EXPECT_EQ(refusal(folder_.path() + "/fr/"), "");
    EXPECT_EQ(refusal("rank_"), "") << "in the working directory";
    EXPECT_EQ(refusal("/nowhere/rank_"),
              "--flight-recorder=/nowhere/rank_: there is no directory /nowhere");
    std::filesystem::create_directory(folder_.path() + "/fr/a0");
    EXPECT_EQ(refusal(folder_.path() + "/fr/a"),
              "--flight-recorder=" + folder_.path() + "/fr/a: " + folder_.path() +
                  "/fr/a0 is no file, but a directory, a device or a pipe");
    EXPECT_THAT(refusal("rank_", {SIGTERM, SIGUSR1}),
                HasSubstr("SIGUSR1 stops the job (--signals-to-handle)"));
    EXPECT_EQ(refusal("", {SIGTERM, SIGUSR1}), "");
}

}  // namespace
}  // namespace ddp::launcher
