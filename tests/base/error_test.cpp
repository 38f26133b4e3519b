// Errors: one base class, and the facts that each carries beside its text.
#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <cerrno>

namespace {

TEST(Error, IsTheBaseOfAllOthers) {
    EXPECT_THROW(throw ddp::UsageError("x"), ddp::Error);
    EXPECT_THROW(throw ddp::SystemError("x", EIO), ddp::Error);
    EXPECT_THROW(throw ddp::TimeoutError("x"), ddp::Error);
    EXPECT_THROW(throw ddp::PeerError(1, "x"), ddp::Error);
    EXPECT_THROW(throw ddp::BackendError("nccl", 3, "x"), ddp::Error);
    EXPECT_THROW(throw ddp::CheckpointError("x"), ddp::Error);
}

TEST(SystemError, EndsWithTheTextOfItsErrno) {
    const ddp::SystemError error("open /nowhere", ENOENT);
    EXPECT_STREQ(error.what(), "open /nowhere: No such file or directory");
    EXPECT_EQ(error.code(), ENOENT);
}

TEST(PeerError, KnowsTheRank) { EXPECT_EQ(ddp::PeerError(3, "gone").rank(), 3); }

TEST(BackendError, BeginsWithTheLibrary) {
    const ddp::BackendError error("nccl", 5, "invalid usage");
    EXPECT_STREQ(error.what(), "nccl: invalid usage");
    EXPECT_EQ(error.library(), "nccl");
    EXPECT_EQ(error.code(), 5);
}

}  // namespace
