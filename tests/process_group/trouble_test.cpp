// What a CPU backend says of the other ranks when it is asked from beside (by the half for GPUs):
// of one that is gone, and the same after the ranks that found it have gone themselves.
#include "backends/gloo/make_gloo.hpp"
#include "process_group/group_access.hpp"
#include "process_group/launchers_region.hpp"
#include "process_group/worlds.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <thread>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::HasSubstr;

std::exception_ptr wait_for_trouble(ProcessGroup& group) {
    const auto deadline = base::Deadline::after(30s);
    std::exception_ptr trouble;
    while (!trouble && !deadline.passed()) {
        trouble = process_group::GroupAccess(group).find_trouble("this test");
        std::this_thread::sleep_for(1ms);
    }
    return trouble;
}

void expect_rank_1_blamed(const std::exception_ptr& trouble) {
    ASSERT_TRUE(trouble != nullptr);
    try {
        std::rethrow_exception(trouble);
    } catch (const PeerError& error) {
        EXPECT_EQ(error.rank(), 1) << error.what();
        EXPECT_THAT(error.what(), HasSubstr("rank 1 (pid "));
    }
}

// Rank 0 goes as soon as it has passed on what it found; rank 2 looks when it has gone.
void name_who_is_gone(Backend backend, const std::vector<int>& hosts = {}) {
    const auto body = [](RankReporter&, const std::function<ProcessGroup()>& join) {
        const contract::ControlRegion region = launchers_region();
        ProcessGroup group = join();
        EXPECT_EQ(process_group::GroupAccess(group).find_trouble("nothing"), nullptr);
        group.barrier().wait();
        kill_when_all_are_here(region, group, 1);
        if (group.rank() == 2) std::this_thread::sleep_for(50ms);  // either order is right
        expect_rank_1_blamed(wait_for_trouble(group));
        process_group::GroupAccess(group).pass_on_trouble();
        EXPECT_THROW(group.barrier().wait(), PeerError);
    };
    run_joining_ranks(3, body, {.may_die = {1}, .init = {.backend = backend}, .hosts = hosts});
}

TEST(Trouble, OverShmNamesWhoIsGone) { name_who_is_gone(Backend::shm); }

TEST(Trouble, OverGlooNamesWhoIsGone) {
    if (!gloo::refusal_of_build().empty()) GTEST_SKIP() << gloo::refusal_of_build();
    name_who_is_gone(Backend::gloo);
}

TEST(Trouble, BetweenHostsNamesWhoIsGone) {
    if (!gloo::refusal_of_build().empty()) GTEST_SKIP() << gloo::refusal_of_build();
    name_who_is_gone(Backend::hierarchical, {2, 1});
    name_who_is_gone(Backend::hierarchical, {1, 2});
}

}  // namespace
