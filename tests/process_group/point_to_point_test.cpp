// send, recv and batches of them: beside collectives, in any number and size, and what ends them.
#include "process_group/worlds.hpp"
#include "support/exact_inputs.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <poll.h>

#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::HasSubstr;

// Through channels, and read from the sender's memory.
class PointToPointPaths : public ::testing::TestWithParam<const char*> {
    ScopedTuning tuning_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Paths, PointToPointPaths,
                         ::testing::Values("direct_bytes_max=0", read_directly),
                         [](const auto& path) {
                             return std::string(path.index == 0 ? "Channels" : "Direct");
                         });

TEST_P(PointToPointPaths, PassRoundARing) {
    on_worlds({2, 3, 4, 7}, [](ProcessGroup& group) {
        const Peer next{(group.rank() + 1) % group.size()};
        const Peer last{(group.rank() + group.size() - 1) % group.size()};
        for (const std::size_t size : {0U, 1U, 13U, 4'099U, 300'001U}) {
            auto mine = exact_input<float>(group.rank(), size);
            std::vector<float> theirs(size);
            Work sent = group.send(mine, next);
            group.recv(theirs, last).wait();
            sent.wait();
            EXPECT_EQ(theirs, exact_input<float>(last.rank, size)) << size;
        }
    });
}

// More than a channel holds, so that neither side may wait for the other to be finished.
TEST_P(PointToPointPaths, MoveBothWaysAtOnce) {
    run_ranks(2, [](ProcessGroup& group) {
        const Peer other{1 - group.rank()};
        constexpr std::size_t size = 3'000'000;
        auto mine = exact_input<std::int32_t>(group.rank(), size);
        std::vector<std::int32_t> theirs(size);
        const P2POp both[] = {{P2POp::send, mine, other}, {P2POp::recv, theirs, other}};
        group.batch_send_recv(both).wait();
        EXPECT_TRUE(theirs == exact_input<std::int32_t>(other.rank, size));
        group.batch_send_recv({}).wait();
    });
}

TEST(PointToPoint, KeepsTheOrderOfManyInFlight) {
    run_ranks(3, [](ProcessGroup& group) {
        constexpr int count = 200;
        std::vector<std::vector<std::int32_t>> sent, got;
        std::vector<Work> works;
        for (int i = 0; i < count; ++i) {
            const auto size = static_cast<std::size_t>(i * 37 % 101 * 50);
            sent.emplace_back(size, group.rank() * 1'000 + i);
            got.emplace_back(size, -1);
        }
        for (int i = 0; i < count; ++i) {
            const auto index = static_cast<std::size_t>(i);
            works.push_back(group.send(sent[index], Peer{(group.rank() + 1) % 3}));
            works.push_back(group.recv(got[index], Peer{(group.rank() + 2) % 3}));
        }
        while (!works.empty()) {  // from the last
            works.back().wait();
            works.pop_back();
        }
        for (int i = 0; i < count; ++i) {
            const auto& one = got[static_cast<std::size_t>(i)];
            EXPECT_EQ(one,
                      std::vector<std::int32_t>(one.size(), (group.rank() + 2) % 3 * 1'000 + i));
        }
    });
}

TEST(PointToPoint, BatchesExchangeWithEverybody) {
    on_worlds({2, 4, 7}, [](ProcessGroup& group) {
        constexpr std::size_t size = 10'007;
        auto mine = exact_input<double>(group.rank(), size);
        std::vector<std::vector<double>> got(static_cast<std::size_t>(group.size()));
        std::vector<P2POp> ops;
        for (int peer = 0; peer < group.size(); ++peer) {
            if (peer == group.rank()) continue;
            auto& theirs = got[static_cast<std::size_t>(peer)];
            theirs.resize(size);
            ops.push_back({P2POp::recv, theirs, Peer{peer}});
            ops.push_back({P2POp::send, mine, Peer{peer}});
        }
        group.batch_send_recv(ops).wait();
        for (int peer = 0; peer < group.size(); ++peer) {
            if (peer == group.rank()) continue;
            EXPECT_EQ(got[static_cast<std::size_t>(peer)], exact_input<double>(peer, size));
        }
    });
}

TEST(PointToPoint, RunsBesideCollectivesWithoutOrderToThem) {
    run_ranks(2, [](ProcessGroup& group) {
        const Peer other{1 - group.rank()};
        std::vector<std::int32_t> mine(200'000, group.rank()), theirs(200'000, -1);
        std::vector<float> values(50'000, 1.0F);
        Work moved, reduced;
        if (group.rank() == 0) {
            moved = group.send(mine, other);
            group.all_reduce(values).wait();
        } else {
            reduced = group.all_reduce(values);
            reduced.wait();
            moved = group.recv(theirs, other);
        }
        moved.wait();
        EXPECT_EQ(values, std::vector<float>(50'000, 2.0F));
        const std::int32_t wanted = group.rank() == 1 ? 0 : -1;
        EXPECT_EQ(theirs, std::vector<std::int32_t>(200'000, wanted));
    });
}

TEST(PointToPoint, CompletesWithoutAnybodyWaiting) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(300'000, static_cast<float>(group.rank()));
        const Peer other{1 - group.rank()};
        Work work = group.rank() == 0 ? group.send(values, other) : group.recv(values, other);
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!work.is_completed() && std::chrono::steady_clock::now() < end) ::sched_yield();
        EXPECT_TRUE(work.is_completed());
        EXPECT_EQ(values[299'999], 0.0F);
    });
}

TEST(PointToPoint, HasCompletedWhenItsGroupIsDestroyed) {
    run_ranks(2, [](ProcessGroup& group) {
        auto sub_group = std::make_unique<ProcessGroup>(group.split({.color = 0}));
        std::vector<std::int32_t> value{group.rank()};
        if (group.rank() == 0) {
            const Work work = sub_group->recv(value, Peer{1});
            // Rank 1 has then not sent, and sends after a while.
            group.barrier().wait();
            sub_group.reset();
            EXPECT_TRUE(work.is_completed());
            EXPECT_EQ(value, std::vector<std::int32_t>{1});
        } else {
            group.barrier().wait();
            std::this_thread::sleep_for(std::chrono::milliseconds{50});
            sub_group->send(value, Peer{0}).wait();
        }
    });
}

TEST(PointToPoint, TellsTheReceiverOfAnotherSize) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(group.rank() == 0 ? 3 : 4);
        const Peer other{1 - group.rank()};
        if (group.rank() == 0) return group.send(values, other).wait();
        try {
            group.recv(values, other).wait();
            ADD_FAILURE() << "took it";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("recv of 16 bytes from rank 0, but rank 0 (pid "));
            EXPECT_THAT(error.what(), HasSubstr("sent 12 bytes"));
        }
    });
}

TEST(PointToPoint, RefusesItselfAndWhoIsNotThere) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(3);
        for (const int peer : {-1, 2, group.rank()}) {
            EXPECT_THROW(group.send(values, Peer{peer}).wait(), UsageError) << peer;
            EXPECT_THROW(group.recv(values, Peer{peer}).wait(), UsageError) << peer;
        }
        EXPECT_EQ(group.all_reduce(1), 2) << "a refused call must not fail the group";
    });
}

TEST(PointToPoint, ThrowsPeerErrorWhenTheSenderIsKilled) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  std::vector<float> values(2'000'000);
                  const P2POp half{P2POp::send, std::span(values).subspan(0, 10), Peer{0}};
                  if (group.rank() == 1) {
                      group.batch_send_recv({&half, 1}).wait();
                      ::raise(SIGKILL);
                  }
                  if (group.rank() == 2) return;
                  group.recv(std::span(values).subspan(0, 10), Peer{1}).wait();
                  Work first = group.recv(values, Peer{1});
                  Work second = group.recv(values, Peer{1});
                  for (Work* const work : {&second, &first}) {
                      try {
                          work->wait();
                          ADD_FAILURE() << "received from the dead";
                      } catch (const PeerError& error) {
                          EXPECT_EQ(error.rank(), 1);
                      }
                  }
                  EXPECT_THROW(group.send(values, Peer{2}).wait(), PeerError);
              },
              {.may_die = {1}});
}

void wait_for_the_end_of(std::int64_t pid) {
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
    pollfd end{pidfd, POLLIN, 0};
    EXPECT_TRUE(pidfd < 0 || ::poll(&end, 1, 30'000) == 1);
}

// Ranks may leave at different times: who is not part of a transfer does not end it.
TEST(PointToPoint, GoesOnWhenAnotherRankHasLeft) {
    run_ranks(3, [](ProcessGroup& group) {
        const std::int64_t left =
            group.all_reduce(group.rank() == 2 ? std::int64_t{::getpid()} : std::int64_t{0});
        if (group.rank() == 2) return;
        wait_for_the_end_of(left);
        std::vector<float> values(1'000);
        const Peer other{1 - group.rank()};
        if (group.rank() == 0) {
            Work waits = group.recv(values, other);  // for more than one slice of a futex
            const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
            while (std::chrono::steady_clock::now() < end) ::sched_yield();
            group.send(values, other).wait();
            EXPECT_NO_THROW(waits.wait());
        } else {
            EXPECT_NO_THROW(group.recv(values, other).wait());
            EXPECT_NO_THROW(group.send(values, other).wait());
        }
    });
}

TEST(PointToPoint, RefuseABatchThatReceivesIntoItsOtherMemory) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> memory(100, static_cast<float>(group.rank()));
        const Peer other{1 - group.rank()};
        const auto op = [&](P2POp::Kind kind, std::size_t first, std::size_t count) {
            return P2POp{kind, std::span<float>(memory).subspan(first, count), other};
        };
        const auto refusal = [&](const std::vector<P2POp>& batch) {
            try {
                group.batch_send_recv(batch).wait();
                return std::string("none");
            } catch (const UsageError& error) {
                return std::string(error.what());
            }
        };
        const std::string peer = std::to_string(other.rank);
        EXPECT_THAT(refusal({op(P2POp::recv, 5, 10), op(P2POp::send, 0, 6)}),
                    HasSubstr("transfers 0 (recv from rank " + peer + ") and 1 (send to rank " +
                              peer + ") overlap"));
        EXPECT_THAT(refusal({op(P2POp::send, 50, 9), op(P2POp::recv, 0, 9), op(P2POp::recv, 8, 9)}),
                    HasSubstr("transfers 1 (recv from rank " + peer + ") and 2 (recv from rank "));
        EXPECT_EQ(refusal({op(P2POp::send, 0, 10), op(P2POp::send, 5, 10), op(P2POp::recv, 20, 10),
                           op(P2POp::recv, 30, 10)}),
                  "none");
        EXPECT_EQ(memory[39], static_cast<float>(other.rank));
    });
}

TEST(PointToPoint, ThrowsTimeoutErrorThatNamesThePeer) {
    run_ranks(2, [](ProcessGroup&) {
        // Another group than the first, for which ranks may come late.
        ProcessGroup group = init_process_group({.timeout = std::chrono::milliseconds(300)});
        std::vector<float> values(10);
        if (group.rank() == 1) {
            EXPECT_THROW(
                for (;;) { group.recv(values, Peer{0}).wait(); }, Error);
            return;
        }
        try {
            group.recv(values, Peer{1}).wait();
            ADD_FAILURE() << "received what nobody sent";
        } catch (const TimeoutError& error) {
            EXPECT_THAT(error.what(), HasSubstr("rank 1"));
        }
    });
}

}  // namespace
