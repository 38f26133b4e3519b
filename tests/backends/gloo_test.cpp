// What is Gloo's own beside the collectives that every backend passes: the choice of the network,
// transfers, and how each kind of end reaches every rank.
#include <ddp/testing.hpp>

#include "backends/gloo/network_address.hpp"
#include "support/exact_inputs.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using ddp::gloo::AddressChoice;
using ddp::gloo::choose_address;
using ddp::gloo::Interface;
using ddp::testing::exact_input;
using ddp::testing::run_ranks;
using ::testing::HasSubstr;

const InitOptions over_gloo{.backend = Backend::gloo, .timeout = 20s};

const std::vector<Interface> two_networks{
    {"lo", "127.0.0.1", true}, {"eth0", "10.0.0.5", false}, {"ib0", "10.1.0.5", false}};

std::string refusal(const AddressChoice& choice, const std::vector<Interface>& interfaces) {
    try {
        return "chose " + choose_address(choice, interfaces);
    } catch (const UsageError& error) {
        return error.what();
    }
}

TEST(GlooAddress, IsTheWantedInterfaces) {
    EXPECT_EQ(choose_address({"ib0", false, std::nullopt}, two_networks), "10.1.0.5");
    EXPECT_EQ(choose_address({"ib0,eth0", true, std::nullopt}, two_networks), "10.1.0.5");
    EXPECT_THAT(refusal({"eth7", true, std::nullopt}, two_networks),
                HasSubstr("DDP_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) is eth7, but no such network "
                          "interface is up here; there are: lo (127.0.0.1), eth0 (10.0.0.5)"));
}

TEST(GlooAddress, IsLoopbackOnOneHost) {
    const MasterAddress elsewhere{"192.0.2.1", 1};
    EXPECT_EQ(choose_address({std::nullopt, true, elsewhere}, two_networks), "127.0.0.1");
}

TEST(GlooAddress, IsNeverLoopbackBetweenHosts) {
    const MasterAddress here{"127.0.1.1", 1};
    const std::vector<Interface> one_network(two_networks.begin(), two_networks.begin() + 2);
    EXPECT_EQ(choose_address({std::nullopt, false, here}, one_network), "10.0.0.5");
    EXPECT_THAT(refusal({std::nullopt, false, here}, two_networks),
                HasSubstr("MASTER_ADDR 127.0.1.1 is loopback here; set DDP_SOCKET_IFNAME to one "
                          "of: eth0 (10.0.0.5), ib0 (10.1.0.5)"));
    EXPECT_THAT(refusal({std::nullopt, false, std::nullopt}, two_networks),
                HasSubstr("there is no MASTER_ADDR"));
}

TEST(GlooAddress, FindsThisHostsInterfaces) {
    const auto interfaces = gloo::list_interfaces();
    EXPECT_TRUE(std::any_of(interfaces.begin(), interfaces.end(), [](const Interface& one) {
        return one.loopback && one.address == "127.0.0.1";
    }));
}

TEST(GlooBackend, TellsEveryRankWhichRankHasNoSuchInterface) {
    const auto body = [](ddp::testing::RankReporter& reporter,
                         const std::function<ProcessGroup()>& join) {
        ::setenv("DDP_SOCKET_IFNAME", "nonesuch0", 1);
        try {
            join();
        } catch (const UsageError& error) {
            reporter.failure(error.what());
        }
    };
    const auto failures = ddp::testing::fork_ranks(2, body, {.init = over_gloo});
    ASSERT_EQ(failures.size(), 2U);
    for (const auto& failure : failures) {
        EXPECT_THAT(failure.message, HasSubstr("backend gloo cannot be had: rank 0 on host "));
        EXPECT_THAT(failure.message, HasSubstr("; rank 1 on host "));
        EXPECT_THAT(failure.message, HasSubstr("is nonesuch0, but no such network interface"));
    }
}

TEST(GlooBackend, AddsInTheOrderOfTheTree) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_ranks(3,
              [seed](ProcessGroup& group) {
                  std::mt19937 random(seed + static_cast<unsigned>(group.rank()));
                  std::normal_distribution<float> normal;
                  for (const std::size_t size : {100, 100'003, 3'000'017}) {
                      std::vector<float> values(size);
                      for (float& value : values) value = normal(random);
                      auto over_tcp = values;
                      group.all_reduce(over_tcp).wait();
                      std::vector<float> all(3 * size);
                      group.all_gather(values, all).wait();
                      std::size_t wrong = 0;
                      for (std::size_t i = 0; i < size; ++i) {
                          wrong += over_tcp[i] != all[i] + all[size + i] + all[2 * size + i];
                      }
                      EXPECT_EQ(wrong, 0U) << size;
                  }
              },
              {.init = over_gloo});
}

TEST(GlooBackend, SendsBothDirectionsAtOnceInOrder) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  const int to = (group.rank() + 1) % 3;
                  const int from = (group.rank() + 2) % 3;
                  constexpr std::size_t large = 3'000'000;
                  auto first = exact_input<float>(group.rank(), large);
                  auto second = exact_input<float>(group.rank() + 10, 5);
                  std::vector<float> none;
                  std::vector<float> got_first(large);
                  std::vector<float> got_second(5);
                  Work sent_first = group.send(first, Peer{to});
                  Work sent_none = group.send(none, Peer{to});
                  Work sent_second = group.send(second, Peer{to});
                  Work first_received = group.recv(got_first, Peer{from});
                  Work none_received = group.recv(none, Peer{from});
                  Work second_received = group.recv(got_second, Peer{from});
                  group.barrier().wait();
                  second_received.wait();
                  first_received.wait();
                  none_received.wait();
                  sent_first.wait();
                  sent_none.wait();
                  sent_second.wait();
                  EXPECT_EQ(got_first, exact_input<float>(from, large));
                  EXPECT_EQ(got_second, exact_input<float>(from + 10, 5));
              },
              {.init = over_gloo});
}

TEST(GlooBackend, TellsBothSidesWhenTheirSizesDiffer) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  std::vector<std::uint8_t> data(group.rank() == 0 ? 8 : 16);
                  try {
                      if (group.rank() == 0) group.send(data, Peer{1}).wait();
                      if (group.rank() == 1) group.recv(data, Peer{0}).wait();
                      group.barrier().wait();
                      ADD_FAILURE() << "went on";
                  } catch (const UsageError& error) {
                      EXPECT_THAT(error.what(), HasSubstr("sends 8 bytes to rank 1 (pid "));
                      EXPECT_THAT(error.what(), HasSubstr("which receives 16"));
                  }
              },
              {.init = over_gloo});
}

TEST(GlooBackend, TellsEveryRankWhenTheirCallsDiffer) {
    run_ranks(4,
              [](ProcessGroup& group) {
                  std::vector<float> values(group.rank() == 2 ? 64 : 128);
                  try {
                      group.all_reduce(values).wait();
                      ADD_FAILURE() << "went on";
                  } catch (const UsageError& error) {
                      EXPECT_THAT(error.what(),
                                  HasSubstr("rank 0 called all_reduce of 128 float32 (sum), rank 2 "
                                            "called all_reduce of 64 float32 (sum)"));
                  }
                  EXPECT_THROW(group.barrier().wait(), UsageError);
              },
              {.init = over_gloo});
}

TEST(GlooBackend, TellsEveryRankWhenCountsDoNotMeet) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  std::vector<std::size_t> out{1, 2, 3};
                  std::vector<std::size_t> in(3, out[static_cast<std::size_t>(group.rank())]);
                  if (group.rank() == 1) in[2] = 7;
                  std::vector<int> input(6);
                  std::vector<int> output(in[0] + in[1] + in[2]);
                  try {
                      group.all_to_all(input, output, SplitSizes{out, in}).wait();
                      ADD_FAILURE() << "went on";
                  } catch (const UsageError& error) {
                      EXPECT_THAT(error.what(), HasSubstr("rank 2 sends 2 elements to rank 1, "
                                                          "which receives 7"));
                  }
              },
              {.init = over_gloo});
}

TEST(GlooBackend, NamesTheRankThatIsKilledAtARandomMoment) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int round = 0; round < 12; ++round) {
        const auto delay = std::chrono::microseconds(random() % 50'000);
        run_ranks(4,
                  [&](ProcessGroup& group) {
                      std::jthread killer;
                      if (group.rank() == 2) {
                          killer = std::jthread([&] {
                              std::this_thread::sleep_for(delay);
                              ::raise(SIGKILL);
                          });
                      }
                      std::vector<float> values(500'000);
                      try {
                          for (;;) {
                              std::fill(values.begin(), values.end(), 1.0F);
                              group.all_reduce(values).wait();
                              ASSERT_EQ(values.front() + values.back(), 8.0F) << "a wrong sum";
                          }
                      } catch (const PeerError& error) {
                          EXPECT_EQ(error.rank(), 2) << error.what();
                      }
                  },
                  {.may_die = {2}, .init = over_gloo});
    }
}

TEST(GlooBackend, TellsRanksThatDoNotWaitForTheKilledOne) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  if (group.rank() == 2) ::raise(SIGKILL);
                  std::vector<float> values(10);
                  try {
                      // 0 waits for 1, which waits for nobody before the barrier.
                      if (group.rank() == 0) group.recv(values, Peer{1}).wait();
                      group.barrier().wait();
                      ADD_FAILURE() << "passed without rank 2";
                  } catch (const PeerError& error) {
                      EXPECT_EQ(error.rank(), 2) << error.what();
                  }
              },
              {.may_die = {2}, .init = over_gloo});
}

// The process of rank 1, on every rank.
pid_t process_of_rank_1(ProcessGroup& group) {
    const std::int64_t mine = group.rank() == 1 ? ::getpid() : 0;
    return static_cast<pid_t>(group.all_reduce(mine, ReduceOp::max));
}

TEST(GlooBackend, ThrowsTimeoutErrorWhenAPeerIsStopped) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  const pid_t stopped = process_of_rank_1(group);
                  std::vector<float> values(1'000'000);
                  try {
                      group.barrier().wait();
                      if (group.rank() == 0) ::kill(stopped, SIGSTOP);
                      for (;;) group.all_reduce(values).wait();
                  } catch (const TimeoutError& error) {
                      EXPECT_NE(group.rank(), 1);
                      EXPECT_THAT(error.what(),
                                  HasSubstr("waiting for rank 1 (pid " + std::to_string(stopped)));
                  }
                  if (group.rank() == 0) ::kill(stopped, SIGKILL);
              },
              {.may_die = {1}, .init = {.backend = Backend::gloo, .timeout = 1500ms}});
}

TEST(GlooBackend, ThrowsTimeoutErrorWhenATransferIsNotMet) {
    run_ranks(2,
              [](ProcessGroup& group) {
                  const pid_t idle = process_of_rank_1(group);
                  if (group.rank() == 1) ::pause();
                  std::vector<float> values(10);
                  try {
                      group.recv(values, Peer{1}).wait();
                      ADD_FAILURE() << "received";
                  } catch (const TimeoutError& error) {
                      EXPECT_THAT(error.what(), HasSubstr("recv of 40 bytes from rank 1 did not "
                                                          "end within 1.5 s"));
                  }
                  ::kill(idle, SIGKILL);
              },
              {.may_die = {1}, .init = {.backend = Backend::gloo, .timeout = 1500ms}});
}

TEST(GlooBackend, LetsRanksLeaveAtDifferentTimes) {
    for (int round = 0; round < 10; ++round) {
        run_ranks(4,
                  [](ProcessGroup& group) {
                      std::vector<float> values(100'000, 1.0F);
                      group.broadcast(values, Root{group.size() - 1}).wait();
                  },
                  {.init = over_gloo});
    }
}

TEST(GlooBackend, NamesARankThatHasLeftTheGroup) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  if (group.rank() == 1) return;
                  try {
                      group.barrier().wait();
                      ADD_FAILURE() << "passed without rank 1";
                  } catch (const PeerError& error) {
                      EXPECT_EQ(error.rank(), 1);
                      EXPECT_THAT(error.what(), HasSubstr("has left the group before barrier"));
                  }
              },
              {.init = over_gloo});
}

}  // namespace
