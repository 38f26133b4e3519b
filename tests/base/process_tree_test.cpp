#include "base/process/process_tree.hpp"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

namespace ddp::base {
namespace {

// In a grandchild of this process; the answer is its exit code.
template <class Question>
bool asked_of_a_grandchild(Question question) {
    const pid_t self = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
        const pid_t grandchild = ::fork();
        if (grandchild == 0) ::_exit(question(::getpid(), ::getppid(), self) ? 0 : 1);
        int status = 0;
        ::waitpid(grandchild, &status, 0);
        ::_exit(WEXITSTATUS(status));
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status == 0;
}

TEST(ProcessTree, AProcessDescendsFromAllWhoStartedIt) {
    EXPECT_TRUE(asked_of_a_grandchild([](pid_t me, pid_t parent, pid_t grandparent) {
        return descends_from(me, parent) && descends_from(me, grandparent) &&
               descends_from(parent, grandparent);
    }));
}

TEST(ProcessTree, ButNotFromItselfOrWhomItHasStarted) {
    EXPECT_TRUE(asked_of_a_grandchild([](pid_t me, pid_t parent, pid_t grandparent) {
        return !descends_from(me, me) && !descends_from(parent, me) &&
               !descends_from(grandparent, me);
    }));
}

TEST(ProcessTree, WhoIsGoneDescendsFromNobody) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_FALSE(descends_from(child, ::getpid()));
}

}  // namespace
}  // namespace ddp::base
