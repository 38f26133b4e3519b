// run_worker: which exception becomes which exit code.
#include <ddp/run_worker.hpp>

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace {

struct Outcome {
    int exit_code;
    std::string stderr_text;
};

Outcome run(const std::function<void()>& body) {
    ::testing::internal::CaptureStderr();
    const int code = ddp::run_worker(body);
    return {code, ::testing::internal::GetCapturedStderr()};
}

TEST(RunWorker, ReturnsZeroWhenTheBodyReturns) {
    const Outcome outcome = run([] {});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.stderr_text, "");
}

TEST(RunWorker, ReturnsOneForAnError) {
    const Outcome outcome = run([] { throw ddp::UsageError("bad batch size"); });
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.stderr_text, "ddp::UsageError: bad batch size\n");
}

TEST(RunWorker, Returns82WhenAPeerIsToBlame) {
    EXPECT_EQ(run([] { throw ddp::PeerError(1, "rank 1 ended"); }).exit_code, 82);
    EXPECT_EQ(run([] { throw ddp::UsageError("rank 1 has other data", 1); }).exit_code, 82);
}

TEST(RunWorker, ReturnsOneForAnythingElseThrown) {
    EXPECT_EQ(run([] { throw 5; }).exit_code, 1);
}

}  // namespace
