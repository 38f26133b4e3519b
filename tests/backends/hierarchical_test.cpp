// Groups whose ranks share hosts: who carries what, every collective between made-up hosts against
// the serial model, transfers, and what ends such a group. (That the bits are those of one host:
// process_group/same_bits_test.cpp.)
#include "backends/ends_of_groups.hpp"
#include "backends/hierarchical/host_layout.hpp"
#include "process_group/random_plans.hpp"
#include "process_group/worlds.hpp"
#include "support/exact_inputs.hpp"
#include "support/seed_for_ranks.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using hierarchical::HostLayout;
using hierarchical::RankRange;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

int ranks_of(const std::vector<int>& hosts) {
    return std::accumulate(hosts.begin(), hosts.end(), 0);
}

TEST(HostLayout, CountsTheRanksOfHostsThatFollowEachOther) {
    using hierarchical::sizes_of_hosts;
    const std::vector<std::string> in_order{"b", "a", "a", "c"};
    EXPECT_THAT(sizes_of_hosts(in_order), ElementsAre(1, 2, 1));
    const std::vector<std::string> mixed{"a", "b", "a"};
    EXPECT_THAT(sizes_of_hosts(mixed), IsEmpty());
}

// Each column, and what each rank gives, has one helper on each host, and who is asked agrees.
TEST(HostLayout, SharesTheWorkOfAHostAmongItsRanks) {
    for (const std::vector<std::size_t>& sizes :
         std::vector<std::vector<std::size_t>>{{1, 1}, {2, 2}, {3, 5}, {1, 2, 4}, {7, 2, 3}, {8}}) {
        const HostLayout layout(sizes, 0);
        for (std::size_t host = 0; host < layout.hosts(); ++host) {
            for (std::size_t index = 0; index < sizes[host]; ++index) {
                for (std::size_t of = 0; of < layout.hosts(); ++of) {
                    const RankRange helped = layout.helped(host, index, of);
                    for (std::size_t rank = helped.first; rank < helped.end(); ++rank) {
                        EXPECT_EQ(layout.host_of(rank), of);
                        EXPECT_EQ(layout.helper_of(host, rank), layout.host(host).first + index);
                    }
                }
            }
            for (std::size_t columns = 1; columns <= layout.most_columns(); ++columns) {
                std::size_t next = 0;
                for (std::size_t index = 0; index < sizes[host]; ++index) {
                    const RankRange own = layout.columns_of(host, index, columns);
                    EXPECT_EQ(own.first, next);
                    for (; next < own.end(); ++next) {
                        EXPECT_EQ(layout.helper(host, next, columns),
                                  layout.host(host).first + index);
                    }
                }
                EXPECT_EQ(next, columns);
            }
        }
    }
}

TEST(HostLayout, FindsTheLargestSubtreesOfEachHost) {
    const auto subtrees = [](const std::vector<std::size_t>& sizes, std::size_t host) {
        return HostLayout(sizes, 0).subtrees(host);
    };
    EXPECT_THAT(subtrees({4, 4}, 1), ElementsAre(RankRange{4, 4}));
    EXPECT_THAT(subtrees({3, 5}, 0), ElementsAre(RankRange{0, 2}, RankRange{2, 1}));
    EXPECT_THAT(subtrees({3, 5}, 1), ElementsAre(RankRange{3, 1}, RankRange{4, 4}));
    EXPECT_THAT(subtrees({1, 2, 4}, 2), ElementsAre(RankRange{3, 1}, RankRange{4, 3}));
}

TEST(Hierarchical, IsChosenWhereRanksShareHosts) {
    const struct {
        std::vector<int> hosts;
        Backend chosen;
    } table[] = {{{2, 1}, Backend::hierarchical},
                 {{2, 2}, Backend::hierarchical},
                 {{1, 1, 1}, Backend::gloo},
                 {{3}, Backend::shm}};
    for (const auto& row : table) {
        run_ranks(ranks_of(row.hosts),
                  [&](ProcessGroup& group) { EXPECT_EQ(group.backend(), row.chosen); },
                  {.hosts = row.hosts});
    }
}

// Groups of some ranks: on one host, on several, and with hosts that take turns.
TEST(Hierarchical, IsChosenForEachGroupAnew) {
    run_ranks(6,
              [](ProcessGroup& group) {
                  const int rank = group.rank();
                  ProcessGroup host = group.split({.color = rank / 3});
                  EXPECT_EQ(host.backend(), Backend::shm);
                  ProcessGroup pairs = group.split({.color = rank % 3 == 0 ? 0 : 1});
                  EXPECT_EQ(pairs.backend(), rank % 3 == 0 ? Backend::gloo : Backend::hierarchical);
                  ProcessGroup turns = group.split({.key = rank % 3});
                  EXPECT_EQ(turns.backend(), Backend::gloo);
                  for (ProcessGroup* one : {&host, &pairs, &turns}) {
                      EXPECT_EQ(one->all_reduce(1), one->size());
                  }
              },
              {.hosts = {3, 3}});
}

TEST(Hierarchical, IsRefusedWhereTheRanksOfAHostDoNotFollowEachOther) {
    const auto body = [](RankReporter&, const std::function<ProcessGroup()>& join) {
        ::setenv("DDP_HOST_ID", worker_env().rank % 2 == 0 ? "even" : "odd", 1);
        try {
            join();
            ADD_FAILURE() << "joined";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("backend hierarchical cannot be had: the ranks of "
                                                "a host must follow each other"));
        }
    };
    const RunRanksOptions options{.init = {.backend = Backend::hierarchical}, .hosts = {3}};
    for (const RankFailure& failure : failures_of_ranks(3, body, options)) {
        ADD_FAILURE() << "rank " << failure.rank << ": " << failure.message;
    }
}

TEST(Hierarchical, AgreesWithASerialModelInRandomSequences) {
    const unsigned seed = seed_for_ranks();
    auto worlds = several_hosts();
    worlds.push_back({1, 1});
    worlds.push_back({4});
    for (const std::vector<int>& hosts : worlds) {
        SCOPED_TRACE(::testing::PrintToString(hosts));
        run_ranks(ranks_of(hosts),
                  [&](ProcessGroup& group) {
                      hierarchical::least_column_bytes = 4 << 10;
                      check_random_plans(group, seed, 60, 20'000);
                  },
                  {.init = {.backend = Backend::hierarchical}, .hosts = hosts});
    }
}

TEST(Hierarchical, AgreesWithASerialModelOnLargeTensors) {
    const unsigned seed = seed_for_ranks();
    run_ranks(5, [&](ProcessGroup& group) { check_random_plans(group, seed, 6, 700'000); },
              {.hosts = {2, 3}});
}

// Inputs are small integers with a period, so sums are exact in any order and a table gives them.
template <class T>
void check_three_chunks(ProcessGroup& group) {
    static constexpr std::size_t period = 13;
    using Row = std::array<T, period>;
    const auto ranks = static_cast<std::size_t>(group.size());
    const auto me = static_cast<std::size_t>(group.rank());
    const auto inputs_of = [](std::size_t rank) {
        Row row;
        for (std::size_t i = 0; i < period; ++i) {
            row[i] = T(static_cast<float>((i * 7 + rank * 3) % period));
        }
        return row;
    };
    Row sums;
    for (std::size_t i = 0; i < period; ++i) {
        float sum = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            sum += static_cast<float>(inputs_of(rank)[i]);
        }
        sums[i] = T(sum);
    }
    const auto fill = [mine = inputs_of(me)](std::vector<T>& values) {
        for (std::size_t at = 0; at < values.size(); at += period) {
            std::memcpy(&values[at], mine.data(), std::min(period, values.size() - at) * sizeof(T));
        }
    };
    // By whole rows, which takes a tenth of the time of one element after the other.
    const auto is_right = [](std::span<const T> values, std::size_t first, Row wanted) {
        std::rotate(wanted.begin(), wanted.begin() + first % period, wanted.end());
        for (std::size_t at = 0; at < values.size(); at += period) {
            const std::size_t bytes = std::min(period, values.size() - at) * sizeof(T);
            if (std::memcmp(&values[at], wanted.data(), bytes) != 0) return false;
        }
        return true;
    };
    std::vector<T> values((13U << 20) / sizeof(T) + 5);
    fill(values);
    group.all_reduce(values).wait();
    EXPECT_TRUE(is_right(values, 0, sums)) << "all_reduce";
    for (const int root : {0, group.size() - 1}) {
        fill(values);
        group.reduce(values, values, Root{root}).wait();
        if (group.rank() == root) {
            EXPECT_TRUE(is_right(values, 0, sums)) << "reduce";
        }
        fill(values);
        group.broadcast(values, Root{root}).wait();
        EXPECT_TRUE(is_right(values, 0, inputs_of(static_cast<std::size_t>(root)))) << "broadcast";
    }
    const std::size_t part = values.size() / ranks;
    values.resize(part * ranks);
    fill(values);
    const auto own = std::span<T>(values).subspan(me * part, part);
    group.reduce_scatter(values, own).wait();
    EXPECT_TRUE(is_right(own, me * part, sums)) << "reduce_scatter";
}

TEST(Hierarchical, HasThreeChunksUnderWay) {
    for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{2, 2}, {1, 2}, {2, 1, 2}}) {
        SCOPED_TRACE(::testing::PrintToString(hosts));
        run_ranks(ranks_of(hosts),
                  [](ProcessGroup& group) {
                      check_three_chunks<float>(group);
                      check_three_chunks<bfloat16>(group);
                  },
                  {.hosts = hosts});
    }
}

TEST(Hierarchical, SendsWithinHostsAndBetweenThem) {
    run_ranks(
        5,
        [](ProcessGroup& group) {
            const int ranks = group.size();
            for (const std::size_t size : {0U, 3U, 4'099U, 300'001U}) {
                auto mine = exact_input<float>(group.rank(), size);
                std::vector<std::vector<float>> theirs(static_cast<std::size_t>(ranks),
                                                       std::vector<float>(size));
                std::vector<Work> works;
                for (int peer = 0; peer < ranks; ++peer) {
                    if (peer == group.rank()) continue;
                    works.push_back(group.send(mine, Peer{peer}));
                    works.push_back(group.recv(theirs[static_cast<std::size_t>(peer)], Peer{peer}));
                }
                EXPECT_EQ(group.all_reduce(1), ranks);  // beside them
                for (Work& work : works) work.wait();
                for (int peer = 0; peer < ranks; ++peer) {
                    if (peer == group.rank()) continue;
                    EXPECT_EQ(theirs[static_cast<std::size_t>(peer)],
                              exact_input<float>(peer, size));
                }
            }
        },
        {.hosts = {2, 3}});
}

TEST(Hierarchical, TellsEveryRankWhenTheirCallsDiffer) {
    for (const int odd : {1, 3}) {  // on the first one's host, and on the other
        expect_different_calls_told(odd, {.hosts = {2, 2}});
    }
}

TEST(Hierarchical, TellsEveryRankWhenCountsDoNotMeet) {
    expect_different_counts_told({.hosts = {2, 1}});
}

// Within a host, more than waits in a channel, too; and between hosts.
TEST(Hierarchical, TellsBothSidesWhenTheirSizesDiffer) {
    const struct {
        int receiver;
        std::size_t sent;
        std::string says;
    } table[] = {{1, 8, "recv of 16 bytes from rank 0"},
                 {1, 8'000'000, "recv of 16000000 bytes from rank 0"},
                 {2, 8, "sends 8 bytes to rank 2"}};
    for (const auto& row : table) {
        run_ranks(3,
                  [&](ProcessGroup& group) {
                      std::vector<std::uint8_t> data(group.rank() == 0 ? row.sent : 2 * row.sent);
                      try {
                          if (group.rank() == 0) group.send(data, Peer{row.receiver}).wait();
                          if (group.rank() == row.receiver) group.recv(data, Peer{0}).wait();
                          group.barrier().wait();
                          ADD_FAILURE() << "went on";
                      } catch (const UsageError& error) {
                          EXPECT_THAT(error.what(), HasSubstr(row.says));
                      }
                  },
                  {.hosts = {2, 1}});
    }
}

// Whichever rank it is: one that speaks for its host, or not; also of three hosts.
TEST(Hierarchical, NamesTheRankThatIsKilledAtARandomMoment) {
    std::mt19937 random(seed_for_ranks());
    for (int round = 0; round < 12; ++round) {
        const std::vector<int> hosts = round % 2 == 0 ? std::vector{2, 2} : std::vector{2, 1, 2};
        const int killed = round / 2 % ranks_of(hosts);
        const auto delay = std::chrono::microseconds(random() % 50'000);
        SCOPED_TRACE("rank " + std::to_string(killed));
        expect_killed_rank_named(ranks_of(hosts), delay, {.may_die = {killed}, .hosts = hosts});
    }
}

TEST(Hierarchical, NamesTheRankThatDoesNotCome) {
    for (const int absent : {0, 1, 2}) {  // its host's first, its second, the only one of its host
        SCOPED_TRACE("rank " + std::to_string(absent));
        run_ranks(3,
                  [&](ProcessGroup& group) {
                      const auto pid = static_cast<pid_t>(group.all_reduce(
                          std::int64_t{group.rank() == absent ? ::getpid() : 0}, ReduceOp::max));
                      if (group.rank() == absent) {
                          std::this_thread::sleep_for(10s);
                          ::raise(SIGKILL);
                      }
                      std::vector<float> values(1'000'000);
                      // Who waits for a rank that waits itself must not be the first to give up.
                      if (group.rank() == 2) std::this_thread::sleep_for(200ms);
                      try {
                          group.all_reduce(values).wait();
                          ADD_FAILURE() << "passed without it";
                      } catch (const TimeoutError& error) {
                          EXPECT_EQ(error.culprit(), absent) << error.what();
                          EXPECT_THAT(error.what(), HasSubstr("did not end within 1.5 s"));
                      }
                      std::this_thread::sleep_for(1s);  // until all know
                      if (group.rank() == (absent == 0 ? 1 : 0)) ::kill(pid, SIGKILL);
                  },
                  {.may_die = {absent}, .init = {.timeout = 1500ms}, .hosts = {2, 1}});
    }
}

std::size_t resident_bytes() {
    std::size_t total = 0;
    std::size_t resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident * static_cast<std::size_t>(::getpagesize());
}

// Rank 2 stands still again and again in a call whose data go one way, from rank 0 to its host: what
// rank 1, which waits for it, holds meanwhile must not grow with the tensor.
TEST(Hierarchical, HoldsTwoChunksWhileARankOfItsHostStandsStill) {
    const auto body = [](ProcessGroup& group) {
        std::vector<int> pids(3);
        std::vector<int> own{::getpid()};
        group.all_gather(own, pids).wait();
        std::vector<float> values((128U << 20) / sizeof(float), 1.0F);
        group.barrier().wait();
        const std::size_t before = resident_bytes();
        std::size_t most = before;
        std::jthread harm([&](const std::stop_token& stop) {
            while (group.rank() == 1 && !stop.stop_requested()) {
                ::kill(pids[2], SIGSTOP);
                std::this_thread::sleep_for(60ms);
                most = std::max(most, resident_bytes());
                ::kill(pids[2], SIGCONT);
                std::this_thread::sleep_for(6ms);
            }
        });
        group.broadcast(values, Root{0}).wait();
        harm.request_stop();
        harm.join();
        EXPECT_LT(most - before, 24U << 20);  // the whole share of a rank is 64 MiB
        group.barrier().wait();
    };
    run_ranks(3, body, {.hosts = {1, 2}});
}

TEST(Hierarchical, AllocatesForEachHost) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  Tensor tensor = group.allocate(Shape{1000}, DType::float32);
                  const auto values = tensor.as<float>();
                  EXPECT_EQ(std::count(values.begin(), values.end(), 0.0F), 1000);
                  std::fill(values.begin(), values.end(), 1.0F);
                  group.all_reduce(tensor).wait();
                  EXPECT_EQ(std::count(values.begin(), values.end(), 3.0F), 1000);
              },
              {.hosts = {2, 1}});
}

TEST(Hierarchical, LetsRanksLeaveAtDifferentTimes) {
    for (int round = 0; round < 5; ++round) {
        run_ranks(4,
                  [](ProcessGroup& group) {
                      std::vector<float> values(100'000, 1.0F);
                      group.broadcast(values, Root{group.size() - 1}).wait();
                  },
                  {.hosts = {2, 2}});
    }
}

}  // namespace
