// Groups of some of a group's ranks: who is in them and in what order, beside their parent, nested,
// and what their errors call the ranks.
#include "process_group/worlds.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>

#include <signal.h>

#include <thread>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::HasSubstr;

std::vector<int> members_of(ProcessGroup& group, int number) {
    std::vector<int> all(static_cast<std::size_t>(group.size()));
    std::vector<int> mine{number};
    group.all_gather(mine, all).wait();
    return all;
}

TEST(SubGroups, SplitByColorOrderByKeyThenByRank) {
    run_ranks(5, [](ProcessGroup& group) {
        const int rank = group.rank();
        ProcessGroup part = group.split({.color = rank % 2, .key = rank == 4 ? -1 : 0});
        const auto expected = rank % 2 == 0 ? std::vector<int>{4, 0, 2} : std::vector<int>{1, 3};
        EXPECT_EQ(members_of(part, rank), expected);
        EXPECT_EQ(part.backend(), group.backend());
        EXPECT_EQ(group.all_reduce(1), 5);
        EXPECT_THROW(static_cast<void>(group.split({.color = -1})), UsageError);
    });
}

TEST(SubGroups, NewGroupKeepsTheOrderGiven) {
    run_ranks(4, [](ProcessGroup& group) {
        const std::vector<int> ranks{3, 0, 1};
        auto part = group.new_group(ranks);
        EXPECT_EQ(part.has_value(), group.rank() != 2);
        if (part) {
            EXPECT_EQ(members_of(*part, group.rank()), ranks);
        }
        EXPECT_FALSE(group.new_group({}).has_value());
        auto alone = group.new_group(std::vector<int>{2});
        EXPECT_TRUE(!alone || alone->all_reduce(5) == 5);
    });
}

TEST(SubGroups, NewGroupRefusesListsThatAreWrongOrDiffer) {
    run_ranks(3, [](ProcessGroup& group) {
        EXPECT_THROW(static_cast<void>(group.new_group(std::vector<int>{0, 0})), UsageError);
        EXPECT_THROW(static_cast<void>(group.new_group(std::vector<int>{3})), UsageError);
        const std::vector<int> list{0, group.rank() == 1 ? 1 : 2};
        try {
            static_cast<void>(group.new_group(list));
            ADD_FAILURE() << "went on";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("do not all give the same list"));
        }
        EXPECT_EQ(group.all_reduce(1), 3) << "the group goes on";
    });
}

TEST(SubGroups, MayBeNestedAndHaveMemoryOfTheirOwn) {
    run_ranks(6, [](ProcessGroup& group) {
        ProcessGroup half = group.split({.color = group.rank() / 3});
        auto pair = half.new_group(std::vector<int>{2, 0});
        EXPECT_EQ(pair.has_value(), half.rank() != 1);
        ProcessGroup again = half.split({.color = 0, .key = -half.rank()});
        const int first = group.rank() / 3 * 3;
        EXPECT_EQ(members_of(again, group.rank()), (std::vector<int>{first + 2, first + 1, first}));
        if (!pair) return;
        const Tensor tensor = pair->allocate(Shape{40'000}, DType::int32);
        const auto values = tensor.as<std::int32_t>();
        std::fill(values.begin(), values.end(), group.rank());
        pair->all_reduce(tensor).wait();
        EXPECT_EQ(values[39'999], 2 * first + 2);
    });
}

TEST(SubGroups, RunBesideTheirParentAndEachOther) {
    run_ranks(4, [](ProcessGroup& group) {
        ProcessGroup pair = group.split({.color = group.rank() / 2});
        ProcessGroup other = group.split({.color = group.rank() % 2});
        const auto loop = [](ProcessGroup& one, int rounds) {
            std::vector<std::int32_t> values(3'000);
            for (int i = 0; i < rounds; ++i) {
                std::fill(values.begin(), values.end(), i);
                one.all_reduce(values).wait();
                ASSERT_EQ(values[2'999], i * one.size());
            }
        };
        std::jthread first([&] { loop(pair, 200); });
        std::jthread second([&] { loop(other, 150); });
        loop(group, 100);
    });
}

TEST(SubGroups, OutliveTheirParent) {
    const auto body = [](RankReporter& reporter, const std::function<ProcessGroup()>& join) {
        std::optional<ProcessGroup> part;
        {
            ProcessGroup group = join();
            part.emplace(group.split({.color = group.rank() % 2}));
        }
        if (part->all_reduce(1) != 2) reporter.failure("a wrong sum");
    };
    run_joining_ranks(4, body);
}

TEST(SubGroups, NameTheRankOfTheJobWhenAPeerIsKilled) {
    run_ranks(4,
              [](ProcessGroup& group) {
                  ProcessGroup odd = group.split({.color = group.rank() % 2});
                  if (group.rank() == 3) ::raise(SIGKILL);
                  if (group.rank() != 1) return;
                  try {
                      odd.barrier().wait();
                      ADD_FAILURE() << "passed without rank 3";
                  } catch (const PeerError& error) {
                      EXPECT_EQ(error.rank(), 3);
                      EXPECT_THAT(error.what(), HasSubstr("rank 3 (pid "));
                  }
              },
              {.may_die = {3}});
}

TEST(SubGroups, NameTheRanksOfTheJobWhenTheirCallsDiffer) {
    run_ranks(4, [](ProcessGroup& group) {
        ProcessGroup odd = group.split({.color = group.rank() % 2});
        if (group.rank() % 2 == 0) return;
        std::vector<float> values(group.rank() == 3 ? 5 : 4);
        try {
            odd.all_reduce(values).wait();
            ADD_FAILURE() << "went on";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("rank 1 called all_reduce of 4 float32 (sum), "
                                                "rank 3 called all_reduce of 5 float32 (sum)"));
        }
    });
}

TEST(SubGroups, NameTheRanksOfTheJobWhenATransfersSidesDiffer) {
    run_ranks(4, [](ProcessGroup& group) {
        ProcessGroup odd = group.split({.color = group.rank() % 2});
        std::vector<float> values(group.rank() == 3 ? 5 : 4);
        if (group.rank() == 3) odd.send(values, Peer{0}).wait();
        if (group.rank() != 1) return;
        try {
            odd.recv(values, Peer{1}).wait();
            ADD_FAILURE() << "took it";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("recv of 16 bytes from rank 3, but rank 3 (pid "));
        }
    });
}

}  // namespace
