// How groups come to be: what each rank learns, and what each rank is told when it cannot be.
#include <ddp/testing.hpp>

#include "base/socket.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using ddp::testing::fork_ranks;
using ddp::testing::RankReporter;
using ::testing::HasSubstr;

// What init_process_group throws on each of the ranks, as the failures that run_ranks would report.
std::vector<ddp::testing::RankFailure> failures_of(int ranks, const auto& options_of_rank) {
    const auto store_file =
        std::string(::testing::TempDir()) + "ddp-init-" + std::to_string(::getpid());
    const auto body = [&](RankReporter& reporter, const std::function<ProcessGroup()>&) {
        int rank = 0;
        const auto store = make_file_store(store_file, 10s);
        rank = static_cast<int>(store->add("next_rank", 1)) - 1;
        try {
            WorkerEnv me;
            me.rank = me.local_rank = rank;
            me.world_size = me.local_world_size = ranks;
            init_process_group(me, make_prefix_store("group", store), options_of_rank(rank));
            reporter.failure("rank " + std::to_string(rank) + " joined");
        } catch (const Error& error) {
            reporter.failure(error.what());
        }
    };
    const auto failures = fork_ranks(ranks, body, {});
    std::remove(store_file.c_str());
    return failures;
}

TEST(InitProcessGroup, MakesAWorldOfOneWithoutAnEnvironment) {
    for (const char* name : {"RANK", "WORLD_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_RANK"}) {
        ::unsetenv(name);
    }
    ProcessGroup group = init_process_group();
    EXPECT_EQ(group.rank(), 0);
    EXPECT_EQ(group.size(), 1);
    EXPECT_EQ(group.backend(), Backend::shm);
    EXPECT_EQ(group.all_reduce(5), 5);
    EXPECT_EQ(to_string(group.device()), "cpu");
    EXPECT_EQ(group.timeout(), 10min);
}

TEST(InitProcessGroup, LetsRankZeroServeWhenNoAgentDoes) {
    std::uint16_t port = 0;
    {
        const auto listener = base::listen_tcp("127.0.0.1", 0);
        port = base::local_port(listener.get());
    }
    const auto body = [&](RankReporter& reporter, const std::function<ProcessGroup()>& join) {
        const int rank = join().rank();  // only to learn it
        ::setenv("RANK", std::to_string(rank).c_str(), 1);
        ::setenv("WORLD_SIZE", "3", 1);
        ::setenv("MASTER_ADDR", "127.0.0.1", 1);
        ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
        ProcessGroup group = init_process_group();
        if (group.all_reduce(group.rank()) != 3) reporter.failure("wrong sum");
    };
    EXPECT_TRUE(fork_ranks(3, body, {}).empty());
}

TEST(InitProcessGroup, NamesRanksThatDidNotCome) {
    const auto body = [](RankReporter& reporter, const std::function<ProcessGroup()>&) {
        WorkerEnv me;
        me.world_size = me.local_world_size = 3;
        const auto store = make_memory_store(10s);
        try {
            init_process_group(me, store, {.timeout = 100ms});
        } catch (const TimeoutError& error) {
            reporter.failure(error.what());
        }
    };
    const auto failures = fork_ranks(1, body, {});
    ASSERT_EQ(failures.size(), 1U);
    EXPECT_THAT(failures[0].message, HasSubstr("ranks 1, 2 of 3 did not come within 100 ms"));
}

TEST(InitProcessGroup, TellsEveryRankWhichBackendCannotBeHadAndWhy) {
    const auto failures =
        failures_of(2, [](int) { return InitOptions{.backend = Backend::gloo, .timeout = 10s}; });
    ASSERT_EQ(failures.size(), 2U);
    for (const auto& failure : failures) {
        EXPECT_THAT(failure.message, HasSubstr("backend gloo cannot be had: rank 0 on host "));
        EXPECT_THAT(failure.message, HasSubstr("rank 1 on host "));
        EXPECT_THAT(failure.message, HasSubstr("is built without it (it has: shm)"));
    }
}

TEST(InitProcessGroup, TellsEveryRankWhenTheyAskForDifferentBackends) {
    const auto failures = failures_of(2, [](int rank) {
        return InitOptions{.backend = rank == 1 ? Backend::nccl : Backend::shm, .timeout = 10s};
    });
    ASSERT_EQ(failures.size(), 2U);
    for (const auto& failure : failures) {
        EXPECT_THAT(failure.message, HasSubstr("rank 0 asks for backend shm, rank 1 for nccl"));
    }
}

TEST(InitProcessGroup, RefusesARankOutsideItsWorld) {
    WorkerEnv me;
    me.rank = 2;
    me.world_size = 2;
    EXPECT_THROW(init_process_group(me, make_memory_store()), UsageError);
}

}  // namespace
