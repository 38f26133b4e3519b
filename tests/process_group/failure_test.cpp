// What survivors see: a peer that is killed, stopped or elsewhere ends in an error, never in a hang
// or a wrong number.
#include <ddp/testing.hpp>

#include "support/seed_for_ranks.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using ddp::testing::run_ranks;
using ::testing::HasSubstr;

TEST(ProcessGroup, ThrowsPeerErrorWhenAPeerIsKilled) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  if (group.rank() == 1) ::raise(SIGKILL);
                  try {
                      group.barrier().wait();
                      ADD_FAILURE() << "passed without rank 1";
                  } catch (const PeerError& error) {
                      EXPECT_EQ(error.rank(), 1);
                  }
              },
              {.may_die = {1}});
}

TEST(ProcessGroup, ThrowsPeerErrorWhenAPeerIsKilledAtARandomMoment) {
    std::mt19937 random(ddp::testing::seed_for_ranks());
    for (int round = 0; round < 15; ++round) {
        const auto delay = std::chrono::microseconds(random() % 5000);
        run_ranks(4,
                  [&](ProcessGroup& group) {
                      std::jthread killer;
                      if (group.rank() == 2) {
                          killer = std::jthread([&] {
                              std::this_thread::sleep_for(delay);
                              ::raise(SIGKILL);
                          });
                      }
                      std::vector<float> values(50'000);
                      try {
                          for (;;) {
                              std::fill(values.begin(), values.end(), 1.0F);
                              group.all_reduce(values).wait();
                              ASSERT_EQ(values.front() + values.back(), 8.0F) << "a wrong sum";
                          }
                      } catch (const PeerError& error) {
                          EXPECT_EQ(error.rank(), 2);
                      }
                  },
                  {.may_die = {2}});
    }
}

// Until that process has ended.
void wait_for_end(pid_t process) {
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
    if (fd < 0) return;
    pollfd entry{fd, POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, 30'000), 1) << "goes on and on";
    ::close(fd);
}

// Rank 1 is stopped at any moment, also while it writes to rank 0, which gives up at last, uses its
// memory for something else, and lets rank 1 go on.
TEST(ProcessGroup, WritesNothingIntoMemoryThatItsOwnerHasGivenUp) {
    ::setenv("DDP_SHM_TUNING",
             "one_phase_bytes=0,direct_bytes_min=1,direct_bytes_max=1024M,direct_exchange_bytes_"
             "max=1024M",
             1);
    std::mt19937 random(ddp::testing::seed_for_ranks());
    for (int round = 0; round < 12; ++round) {
        const auto delay = std::chrono::microseconds(random() % 5000);
        run_ranks(2, [&](ProcessGroup& first) {
            // Another group than the first, for which ranks may come late.
            ProcessGroup group = init_process_group({.timeout = 300ms});
            const auto writer = static_cast<pid_t>(first.all_reduce(
                group.rank() == 1 ? std::int64_t{::getpid()} : std::int64_t{0}, ReduceOp::max));
            std::vector<std::int32_t> mine(300'001, group.rank()), all(2 * mine.size());
            std::jthread stopper;
            if (group.rank() == 0) {
                stopper = std::jthread([&] {
                    std::this_thread::sleep_for(delay);
                    ::kill(writer, SIGSTOP);
                });
            }
            try {
                for (;;) group.all_gather(mine, all).wait();
            } catch (const TimeoutError&) {
            }
            if (group.rank() == 1) return;
            std::fill(all.begin(), all.end(), 77);
            ::kill(writer, SIGCONT);
            wait_for_end(writer);
            EXPECT_EQ(std::count(all.begin(), all.end(), 77), std::ssize(all));
        });
    }
    ::unsetenv("DDP_SHM_TUNING");
}

TEST(ProcessGroup, ThrowsTimeoutErrorWhenAPeerIsStopped) {
    run_ranks(
        2,
        [](ProcessGroup&) {
            // Another group than the first, for which ranks may come late.
            ProcessGroup group = init_process_group({.timeout = 500ms});
            const auto stopped = static_cast<pid_t>(group.all_reduce(
                group.rank() == 1 ? std::int64_t{::getpid()} : std::int64_t{0}, ReduceOp::max));
            if (group.rank() == 1) {
                group.barrier().wait();
                return;
            }
            ::kill(stopped, SIGSTOP);
            std::vector<float> values(10'000);
            try {
                group.barrier().wait();
                group.all_reduce(values).wait();
                ADD_FAILURE() << "passed without rank 1";
            } catch (const TimeoutError& error) {
                EXPECT_THAT(error.what(), HasSubstr("rank 1 (pid " + std::to_string(stopped)));
            } catch (const PeerError&) {
                ADD_FAILURE() << "a stopped process is not a dead one";
            }
            ::kill(stopped, SIGKILL);
        },
        {.may_die = {1}});
}

TEST(ProcessGroup, StaysFailedAndEndsWhatIsInFlight) {
    run_ranks(2,
              [](ProcessGroup& group) {
                  if (group.rank() == 1) ::raise(SIGKILL);
                  std::vector<float> first(10);
                  std::vector<float> second(10);
                  Work one = group.all_reduce(first);
                  Work two = group.all_reduce(second);
                  EXPECT_THROW(two.wait(), PeerError);
                  EXPECT_THROW(one.wait(), PeerError);
                  EXPECT_THROW(static_cast<void>(group.all_reduce(1)), PeerError);
              },
              {.may_die = {1}});
}

TEST(ProcessGroup, TellsEveryRankWhenTheirCallsDiffer) {
    run_ranks(3, [](ProcessGroup& group) {
        std::vector<float> values(group.rank() == 1 ? 64 : 128);
        try {
            group.all_reduce(values).wait();
            ADD_FAILURE() << "went on";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("rank 0 called all_reduce of 128 float32 (sum)"));
            EXPECT_THAT(error.what(), HasSubstr("rank 1 called all_reduce of 64 float32 (sum)"));
        }
    });
}

TEST(ProcessGroup, UnwindsWithoutHangingWhenAnExceptionPassesWorksInFlight) {
    const auto body = [](ddp::testing::RankReporter&, const std::function<ProcessGroup()>& join) {
        ProcessGroup group = join();
        std::vector<float> values(1000);
        Work work = group.all_reduce(values);
        if (group.rank() == 0) throw std::runtime_error("in the middle");
        work.wait();
    };
    const auto failures = ddp::testing::failures_of_ranks(2, body);
    ASSERT_EQ(failures.size(), 1U);
    EXPECT_EQ(failures[0].rank, 0);
    EXPECT_THAT(failures[0].message, HasSubstr("in the middle"));
}

// Who gives its part to a small call may be gone before the others come.
TEST(ProcessGroup, LetsARankLeaveThatHasGivenItsPart) {
    const auto late = [](const ProcessGroup& group, int rank) {
        // Longer than a survivor sleeps before it looks who has ended.
        if (group.rank() == rank) std::this_thread::sleep_for(200ms);
    };
    run_ranks(3, [&](ProcessGroup& group) {
        late(group, 2);
        EXPECT_EQ(group.rank() == 0 ? 6 : 0, [&] {
            std::int32_t mine = group.rank() + 1;
            std::int32_t sum = 0;
            group
                .reduce(TensorView(&mine, Shape{1}, DType::int32),
                        TensorView(&sum, Shape{1}, DType::int32))
                .wait();
            return sum;
        }());
    });
    run_ranks(3, [&](ProcessGroup& group) {
        late(group, 2);
        std::vector<std::int32_t> values(10, group.rank() == 0 ? 7 : 0);
        group.broadcast(values).wait();
        EXPECT_EQ(values[9], 7);
    });
}

// Pieces that are rounded down to cache lines can make two chunks of what would fit into one.
TEST(ProcessGroup, ScattersMoreThanASlotHasRoomForInPieces) {
    ::setenv("DDP_SHM_TUNING", "chunk_bytes=4K,one_phase_bytes=4K", 1);
    run_ranks(12, [](ProcessGroup& group) {
        constexpr std::size_t part = 84;
        std::vector<float> input(group.rank() == 0 ? 12 * part : 0);
        for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i);
        for (int round = 0; round < 5; ++round) {
            std::vector<float> output(part, -1.0F);
            group.scatter(input, output).wait();
            const auto first = static_cast<float>(static_cast<std::size_t>(group.rank()) * part);
            EXPECT_EQ(output[0], first);
            EXPECT_EQ(output[part - 1], first + static_cast<float>(part - 1));
        }
    });
    ::unsetenv("DDP_SHM_TUNING");
}

}  // namespace
