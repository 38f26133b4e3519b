#include "base/process/process_tree.hpp"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>

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

std::optional<Mapping> mapping_of(const void* address) {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    std::optional<Mapping> found;
    for_each_mapping("self", [&](const Mapping& one) {
        if (number >= one.begin && number < one.end) found = one;
        return !found;
    });
    return found;
}

int some_function() { return 1; }

TEST(Mappings, TellWhatLiesAtAnAddress) {
    const auto code = mapping_of(reinterpret_cast<const void*>(&some_function));
    ASSERT_TRUE(code);
    EXPECT_EQ(code->access, "r-xp");
    EXPECT_EQ(code->path, std::filesystem::canonical("/proc/self/exe"));
    EXPECT_TRUE(code->is_of_file());
    const int local = 0;
    const auto stack = mapping_of(&local);
    ASSERT_TRUE(stack);
    EXPECT_EQ(stack->access.substr(0, 2), "rw");
    EXPECT_FALSE(stack->is_of_file());
}

TEST(Mappings, AreAllOfThemAndEndWhereNobodyWantsMore) {
    int all = 0;
    for_each_mapping("self", [&](const Mapping& one) {
        EXPECT_LT(one.begin, one.end);
        return ++all > 0;
    });
    EXPECT_GT(all, 5);
    int some = 0;
    for_each_mapping("self", [&](const Mapping&) { return ++some < 3; });
    EXPECT_EQ(some, 3);
    for_each_mapping("0", [](const Mapping&) -> bool { throw 0; });
}

}  // namespace
}  // namespace ddp::base
