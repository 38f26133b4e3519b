// How groups come to be: what each rank learns, and what each rank is told when it cannot be.
#include "process_group/worlds.hpp"

#include "base/deadline.hpp"
#include "base/net/socket.hpp"
#include "base/unique_fd.hpp"
#include "contract/control_page.hpp"

#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using ddp::testing::failures_of_ranks;
using ddp::testing::made_once;
using ddp::testing::RankReporter;
using ddp::testing::run_joining_ranks;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// What init_process_group throws on each of the ranks, as the failures that run_ranks would report.
std::vector<ddp::testing::RankFailure> failures_of(int ranks, const auto& options_of_rank) {
    const std::string store_file =
        made_once([] { return ::testing::TempDir() + "ddp-init-" + std::to_string(::getpid()); });
    const auto body = [&](RankReporter& reporter, const std::function<ProcessGroup()>& join) {
        const int rank = join().rank();  // joins only so that all ranks are there
        try {
            WorkerEnv me;
            me.rank = me.local_rank = rank;
            me.world_size = me.local_world_size = ranks;
            const InitOptions options = options_of_rank(rank);  // before it opens the store
            init_process_group(me, make_file_store(store_file, 10s), options);
            reporter.failure("rank " + std::to_string(rank) + " joined");
        } catch (const Error& error) {
            reporter.failure(error.what());
        }
    };
    const auto failures = failures_of_ranks(ranks, body);
    std::remove(store_file.c_str());
    return failures;
}

// That nobody listens on at this moment.
std::uint16_t free_port() {
    const auto listener = base::listen_tcp("127.0.0.1", 0);
    return base::local_port(listener.get());
}

// Makes a rank's environment that of a job whose rank 0 serves the store.
void expect_no_agent_store(const std::string& port) {
    ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    ::unsetenv("DDP_AGENT_STORE");
    ::setenv("MASTER_PORT", port.c_str(), 1);
}

TEST(InitProcessGroup, PublishedProgressIsInThePageThatTheLauncherReads) {
    const auto region = contract::ControlRegion::create(1);
    const int handed_over = ::dup(region.fd());  // closed by the group
    ::setenv("DDP_CONTROL_FD", region.handover(handed_over).c_str(), 1);
    { const ProcessGroup earlier = init_process_group(); }
    ProcessGroup group = init_process_group();
    ::unsetenv("DDP_CONTROL_FD");
    group.publish_progress(12, 3.5);
    EXPECT_EQ(region.page(0).step.load(), 12);
    EXPECT_EQ(region.page(0).steps_per_second.load(), 3.5);
    group.publish_progress(13);
    EXPECT_EQ(region.page(0).step.load(), 13);
    EXPECT_EQ(region.page(0).steps_per_second.load(), 0);
}

// As of a worker under --virtual-local-rank, whose LOCAL_RANK is 0.
TEST(InitProcessGroup, ShowsItsProgressOnItsOwnPageWhateverItsLocalRankIsSaidToBe) {
    const auto region = contract::ControlRegion::create(3);
    for (const auto& [said, page] : {std::pair{"2", 2}, {"1", 1}, {"", 0}, {"x", 0}, {"1x", 0}}) {
        ::setenv("DDP_CONTROL_FD", region.handover(::dup(region.fd())).c_str(), 1);
        ::setenv("DDP_CONTROL_PAGE", said, 1);
        ProcessGroup group = init_process_group();
        group.publish_progress(100 + page);
        EXPECT_EQ(region.page(page).step.load(), 100 + page) << said;
        region.page(page).step.store(0);
    }
    ::unsetenv("DDP_CONTROL_FD");
    ::unsetenv("DDP_CONTROL_PAGE");
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

TEST(InitProcessGroup, GivesEachRankAVirtualDevice) {
    const auto body = [](RankReporter&, const std::function<ProcessGroup()>& join) {
        ::setenv("DDP_CPU_DEVICES", "2", 1);
        ProcessGroup group = join();
        EXPECT_EQ(group.device(), (Device{DeviceType::cpu, group.rank() % 2}));
        EXPECT_EQ(group.split({.color = 0}).device(), group.device());
        Tensor sum = full({5}, 1.0F, {.device = group.device()});
        group.all_reduce(sum).wait();
        EXPECT_EQ(sum.to(Device{}).view().as<float>()[4], 3.0F);
    };
    run_joining_ranks(3, body);
}

TEST(InitProcessGroup, LetsRankZeroServeWhenNoAgentDoes) {
    const std::string port = made_once([] { return std::to_string(free_port()); });
    const auto body = [&](RankReporter& reporter, const std::function<ProcessGroup()>&) {
        expect_no_agent_store(port);
        ProcessGroup group = init_process_group();
        if (group.all_reduce(group.rank()) != 3) reporter.failure("wrong sum");
    };
    run_joining_ranks(3, body);
}

// exit() runs the destructors of statics, and the store's server is one of rank 0's.
TEST(InitProcessGroup, MakesAnotherGroupAfterAForkedChildOfRankZeroHasExited) {
    const std::string port = made_once([] { return std::to_string(free_port()); });
    const auto body = [&](RankReporter& reporter, const std::function<ProcessGroup()>&) {
        expect_no_agent_store(port);
        ProcessGroup first = init_process_group({.timeout = 30s});
        if (first.rank() == 0) {
            const pid_t child = ::fork();
            if (child == 0) {
                ::alarm(20);  // ends a child that waits for a thread that it has not
                std::exit(0);
            }
            int status = 0;
            if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
                reporter.failure("the child's status is " + std::to_string(status));
            }
        }
        first.barrier().wait();
        ProcessGroup second = init_process_group({.timeout = 30s});
        if (second.all_reduce(1) != 2) reporter.failure("wrong sum");
    };
    run_joining_ranks(2, body);
}

TEST(InitProcessGroup, MakesOneGroupAfterTheOtherAndTwoAtOnce) {
    const std::string port = made_once([] { return std::to_string(free_port()); });
    const auto body = [&](RankReporter& reporter, const std::function<ProcessGroup()>&) {
        expect_no_agent_store(port);
        for (int i = 0; i < 10; ++i) {
            ProcessGroup first = init_process_group({.timeout = 20s});
            ProcessGroup second = init_process_group({.timeout = 20s});
            if (first.all_reduce(1) + second.all_reduce(2) != 9) reporter.failure("wrong sum");
        }
    };
    run_joining_ranks(3, body);
}

TEST(InitProcessGroup, NamesRankZeroAloneWhenOnlyRankZeroIsMissing) {
    const auto failures = failures_of(3, [](int rank) {
        if (rank == 0) throw UsageError("does not join");
        return InitOptions{.timeout = 300ms};
    });
    ASSERT_EQ(failures.size(), 3U);
    int named = 0;
    for (const auto& failure : failures) {
        named +=
            failure.message.find("rank 0 of 3 did not come within 300 ms") != std::string::npos;
    }
    EXPECT_EQ(named, 2) << failures[0].message << failures[1].message << failures[2].message;
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
    const auto failures = failures_of_ranks(1, body);
    ASSERT_EQ(failures.size(), 1U);
    EXPECT_THAT(failures[0].message, HasSubstr("ranks 1, 2 of 3 did not come within 100 ms"));
}

TEST(InitProcessGroup, TellsEveryRankWhichBackendCannotBeHadAndWhy) {
    if (::access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "it may be had here";
    const auto failures =
        failures_of(2, [](int) { return InitOptions{.backend = Backend::nccl, .timeout = 10s}; });
    ASSERT_EQ(failures.size(), 2U);
    for (const auto& failure : failures) {
        EXPECT_THAT(failure.message, HasSubstr("backend nccl cannot be had: rank 0 on host "));
        EXPECT_THAT(failure.message, HasSubstr("rank 1 on host "));
        EXPECT_THAT(failure.message,
                    AnyOf(HasSubstr("is built without it (there was no CUDA toolkit"),
                          HasSubstr("no driver: there is no /dev/nvidiactl")));
    }
}

// Who has asked for GPUs does not train on the CPU without a word.
TEST(InitProcessGroup, SaysOnceWhyNoneOfTheGpusAskedForIsUsed) {
    if (::access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "they may be had here";
    const auto words_of_two_groups = [](const WorkerEnv& me, const char* visible) {
        ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        ::testing::internal::CaptureStderr();
        for (int i = 0; i < 2; ++i) init_process_group(me, nullptr);
        ::unsetenv("CUDA_VISIBLE_DEVICES");
        return ::testing::internal::GetCapturedStderr();
    };
    WorkerEnv another;
    another.local_rank = 1;
    EXPECT_EQ(words_of_two_groups(WorkerEnv{}, ""), "");
    EXPECT_EQ(words_of_two_groups(WorkerEnv{}, "-1"), "");
    EXPECT_EQ(words_of_two_groups(another, "0,1"), "") << "local rank 0 speaks for the host";
    const std::string said = words_of_two_groups(WorkerEnv{}, "0,1");
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_THAT(said, HasSubstr("although CUDA_VISIBLE_DEVICES is 0,1: "));
    EXPECT_THAT(said, AnyOf(HasSubstr("is built without it"), HasSubstr("no driver")));
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

TEST(InitProcessGroup, TellsEveryRankSoWhenRankZeroMakesNoRegion) {
    const auto failures = failures_of(2, [](int rank) {
        return InitOptions{.backend = rank == 0 ? Backend::nccl : Backend::shm, .timeout = 10s};
    });
    ASSERT_EQ(failures.size(), 2U);
    for (const auto& failure : failures) {
        EXPECT_THAT(failure.message, HasSubstr("rank 0 asks for backend nccl, rank 1 for shm"));
    }
}

void leave_descriptors(rlim_t count) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const base::UniqueFd next(::dup(STDERR_FILENO));
    limit.rlim_cur = static_cast<rlim_t>(next.get()) + count;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

// With descriptors for the store and for what tells hosts apart.
TEST(InitProcessGroup, TellsTheOthersThatRank0CannotMakeTheRegion) {
    const auto options_of = [](int rank) {
        if (rank == 0) leave_descriptors(2);
        return InitOptions{.backend = Backend::shm, .timeout = 60s};
    };
    const auto started = base::Deadline::Clock::now();
    const auto failures = failures_of(3, options_of);
    ASSERT_EQ(failures.size(), 3U);
    for (const auto& failure : failures) {
        EXPECT_THAT(failure.message, HasSubstr("backend shm cannot be had: rank 0 on host "));
        EXPECT_THAT(failure.message, HasSubstr("has no region to open: rank 0 could not make it"));
    }
    EXPECT_LT(base::Deadline::Clock::now() - started, 30s) << "half of what they would wait for";
}

// With descriptors for the region but not for all of the peers.
TEST(InitProcessGroup, TellsTheOthersWhenARankFailsAfterAllHaveMet) {
    constexpr int ranks = 4;
    const auto options_of = [](int rank) {
        if (rank == 1) leave_descriptors(3);
        return InitOptions{.backend = Backend::shm, .timeout = 60s};
    };
    const auto started = base::Deadline::Clock::now();
    const auto failures = failures_of(ranks, options_of);
    ASSERT_EQ(failures.size(), static_cast<std::size_t>(ranks));
    for (const auto& failure : failures) {
        EXPECT_THAT(failure.message, HasSubstr(failure.rank == 1 ? "pidfd_open" : "rank 1"));
    }
    EXPECT_LT(base::Deadline::Clock::now() - started, 30s) << "half of what they would wait for";
}

TEST(InitProcessGroup, RefusesARankOutsideItsWorld) {
    WorkerEnv me;
    me.rank = 2;
    me.world_size = 2;
    EXPECT_THROW(init_process_group(me, make_memory_store()), UsageError);
}

}  // namespace
