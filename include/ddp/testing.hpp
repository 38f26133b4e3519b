// Tests of multi-process code with GoogleTest: run a body on N ranks, each a process of its own,
// inside one TEST. Header-only on top of the library, so that ddp itself needs no GoogleTest.
//
//     TEST(MyModel, SumsOverRanks) {
//         ddp::testing::run_ranks(4, [](ddp::ProcessGroup& group) {
//             EXPECT_EQ(group.all_reduce(1), group.size());
//         });
//     }
//
// The ranks are workers of ddp::launch(): link the CMake target ddp::launcher. A rank starts the
// test program anew, with this one test as its filter, and does all that the program and the test
// do before the call (fixture, SetUp); its failures there count as little as its output. Then it
// runs the body and exits, without TearDown. So
//   - the body sees what the rank's own run of the test has made, not this process's memory;
//   - what must be the same in all goes through made_once(): seeds, names of temporary folders;
//   - what the test looks at afterwards has to be in files, or is checked by the body.
#pragma once

#include <ddp/call_site.hpp>
#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/testing_ranks.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace ddp::testing {

// Sends each failed assertion of a rank to the test's own process instead of printing it.
class ReportFailures : public ::testing::EmptyTestEventListener {
public:
    explicit ReportFailures(RankReporter& reporter) : reporter_(reporter) {}  // outlives it
    // What GoogleTest calls.
    void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (!result.failed()) return;
        std::ostringstream text;
        text << (result.file_name() != nullptr ? result.file_name() : "unknown file") << ":"
             << result.line_number() << ": " << result.message();
        reporter_.failure(text.str());
    }

private:
    RankReporter& reporter_;
};

// With these words, after whatever it was given, the program runs this test alone, and once.
inline std::vector<std::string> words_for(const std::string& test) {
    std::vector<std::string> words = program_arguments();
    words.push_back("--gtest_filter=" + test);
    words.insert(words.end(), {"--gtest_repeat=1", "--gtest_shuffle=0", "--gtest_output=",
                               "--gtest_stream_result_to=", "--gtest_also_run_disabled_tests"});
    return words;
}

// The test that runs now, which may be a repetition of the last one.
inline RankTest& current_test() {
    static std::optional<RankTest> current;
    static const ::testing::TestInfo* info = nullptr;
    static ::testing::TimeInMillis started = 0;
    const auto* const now = ::testing::UnitTest::GetInstance()->current_test_info();
    if (now == nullptr) throw UsageError("run_ranks, made_once: call them inside a TEST");
    if (now != info || now->result()->start_timestamp() != started) {
        info = now;
        started = now->result()->start_timestamp();
        const std::string name = std::string(now->test_suite_name()) + "." + now->name();
        const std::vector<std::string> environment{"GTEST_TOTAL_SHARDS=1", "GTEST_SHARD_INDEX=0",
                                                   "TEST_PREMATURE_EXIT_FILE="};
        current.emplace(name, words_for(name), environment);
    }
    return *current;
}

// As run_ranks(), but the failures are the result, and the body joins the group itself.
inline std::vector<RankFailure> failures_of_ranks(int ranks, const RankBody& body,
                                                  const RunRanksOptions& options = {},
                                                  const CallSite& where = CallSite::here()) {
    const auto reporting = [&](RankReporter& reporter, const std::function<ProcessGroup()>& join) {
        auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
        listeners.Append(new ReportFailures(reporter));
        body(reporter, join);
    };
    return current_test().run(ranks, reporting, options, where);
}

// Starts `ranks` processes that form a group over 127.0.0.1 and shared memory, runs `body` in each,
// and waits for all. Each failed assertion, escaped exception, death or overrun of a rank becomes a
// failure of the calling test that names the rank. Nothing survives the call.
inline void run_ranks(int ranks, const std::function<void(ProcessGroup&)>& body,
                      const RunRanksOptions& options = {},
                      const CallSite& where = CallSite::here()) {
    const auto joined = [&](RankReporter&, const std::function<ProcessGroup()>& join) {
        ProcessGroup group = join();
        body(group);
    };
    for (const RankFailure& failure : failures_of_ranks(ranks, joined, options, where)) {
        ADD_FAILURE_AT(where.file(), static_cast<int>(where.line()))
            << "rank " << failure.rank << ": " << failure.message;
    }
}

// What `make` returns in the test's own process, there and in all its ranks.
inline std::string made_once(const std::function<std::string()>& make) {
    return current_test().made_once(make);
}

}  // namespace ddp::testing
