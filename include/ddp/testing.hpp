// Tests of multi-process code with GoogleTest: run a body on N ranks, each a process of its own,
// inside one TEST. Header-only on top of the library, so that ddp itself needs no GoogleTest.
//
//     TEST(MyModel, SumsOverRanks) {
//         ddp::testing::run_ranks(4, [](ddp::ProcessGroup& group) {
//             EXPECT_EQ(group.all_reduce(1), group.size());
//         });
//     }
#pragma once

#include <ddp/process_group.hpp>
#include <ddp/testing_ranks.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>

namespace ddp::testing {

// Sends each failed assertion of a rank to the test's own process instead of printing it.
class ReportFailures : public ::testing::EmptyTestEventListener {
public:
    explicit ReportFailures(RankReporter& reporter) : reporter_(reporter) {}
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

// Forks `ranks` processes that form a group over 127.0.0.1 and shared memory, runs `body` in each,
// and waits for all. Each failed assertion, escaped exception, death or overrun of a rank becomes a
// failure of the calling test that names the rank. Nothing survives the call. Not from a process
// with running threads other than the caller's.
inline void run_ranks(int ranks, const std::function<void(ProcessGroup&)>& body,
                      const RunRanksOptions& options = {}) {
    const auto child = [&](RankReporter& reporter, const std::function<ProcessGroup()>& join) {
        auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
        listeners.Append(new ReportFailures(reporter));
        ProcessGroup group = join();
        body(group);
    };
    for (const RankFailure& failure : fork_ranks(ranks, child, options)) {
        ADD_FAILURE() << "rank " << failure.rank << ": " << failure.message;
    }
}

}  // namespace ddp::testing
