// Which folders are refused for what others could put there.
#include "launcher/plan/error_folder.hpp"

#include "launcher/launch_fixture.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddp::launcher {
namespace {

using ::testing::HasSubstr;

constexpr uid_t stranger = 65534;

std::string refusal_of(const std::string& path) {
    try {
        refuse_strangers_folder(path, "--log-dir");
        return "none";
    } catch (const SystemError& error) {
        return error.what();
    }
}

// A folder like /tmp, with one of a stranger's in it, and more.
class StrangersFolder : public ::testing::Test {
protected:
    StrangersFolder() {
        if (::geteuid() != 0) return;
        ::chmod(open_.c_str(), S_ISVTX | 0777);
        make(evil_, stranger);
    }
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a folder to another user";
    }
    static void make(const std::string& path, uid_t owner) {
        ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
        ASSERT_EQ(::chown(path.c_str(), owner, owner), 0);
    }

    const testing::TemporaryFolder folder_;
    const std::string open_ = folder_.path();
    const std::string evil_ = open_ + "/evil";
};

TEST_F(StrangersFolder, IsRefusedItself) {
    EXPECT_THAT(refusal_of(evil_), HasSubstr(evil_ + " belongs to another user (uid 65534)"));
    EXPECT_THAT(refusal_of(evil_), HasSubstr("choose another with --log-dir"));
    EXPECT_NE(refusal_of(evil_ + "//"), "none");
}

TEST_F(StrangersFolder, IsRefusedForWhatIsToBeMadeInIt) {
    EXPECT_THAT(refusal_of(evil_ + "/new/logs"), HasSubstr(evil_ + " belongs"));
}

TEST_F(StrangersFolder, IsRefusedForWhatTheStrangerMadeInIt) {
    make(evil_ + "/logs", stranger);
    EXPECT_THAT(refusal_of(evil_ + "/logs"), HasSubstr("may have put " + evil_));
}

TEST_F(StrangersFolder, IsRefusedBehindALink) {
    ASSERT_EQ(::symlink("/", (evil_ + "-link").c_str()), 0);
    ASSERT_EQ(::lchown((evil_ + "-link").c_str(), stranger, stranger), 0);
    EXPECT_THAT(refusal_of(evil_ + "-link"), HasSubstr("-link belongs to another user"));
}

// As in a group's place: whoever made it could still move ours away, but was trusted with it.
TEST_F(StrangersFolder, HoldsOurs) {
    make(evil_ + "/ours", ::geteuid());
    EXPECT_EQ(refusal_of(evil_ + "/ours"), "none");
    EXPECT_EQ(refusal_of(open_ + "/new"), "none");
}

// Where an administrator put it.
TEST_F(StrangersFolder, IsFineWhereNotAnybodyMayWrite) {
    ::chmod(open_.c_str(), 0755);
    EXPECT_EQ(refusal_of(evil_), "none");
    EXPECT_EQ(refusal_of(evil_ + "/new"), "none");
}

}  // namespace
}  // namespace ddp::launcher
