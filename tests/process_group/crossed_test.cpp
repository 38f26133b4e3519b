// Features that meet, drawn by a seed: sub-groups and whom the agent blames; a rank that leaves and
// parts of any size.
#include "process_group/launchers_region.hpp"
#include "process_group/worlds.hpp"
#include "support/other_processes.hpp"
#include "support/seed_for_ranks.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;

std::uint64_t draw(std::mt19937& random, std::uint64_t count) { return random() % count; }

// Each rank's choice of a sub-group.
struct Split {
    Split(std::mt19937& random, int ranks) : colors(static_cast<std::size_t>(ranks)), keys(colors) {
        for (int& color : colors) color = static_cast<int>(draw(random, 2));
        for (int& key : keys) key = static_cast<int>(draw(random, 5)) - 2;
    }
    std::vector<int> colors;
    std::vector<int> keys;
};

// The blamed rank stays alive and says nothing: only the agent's word can end the others' calls.
void check_blame(ProcessGroup& group, const contract::ControlRegion& region, const Split& split,
                 int blamed) {
    const auto me = static_cast<std::size_t>(group.rank());
    const OtherProcesses others(group);
    ProcessGroup part = group.split({.color = split.colors[me], .key = split.keys[me]});
    const bool concerned = split.colors[me] == split.colors[static_cast<std::size_t>(blamed)];
    mark_in(region, group);
    if (group.rank() == blamed) {
        wait_for_marks(region, group);
        region.header().abort_word = static_cast<std::uint32_t>(blamed) + 1;
        return others.wait_for_their_end();
    }
    while (region.header().abort_word == 0) std::this_thread::sleep_for(1ms);
    if (!concerned) {
        for (int i = 0; i < 10; ++i) EXPECT_EQ(part.all_reduce(1), part.size());
        return;
    }
    try {
        part.barrier().wait();
        ADD_FAILURE() << "passed without rank " << blamed;
    } catch (const PeerError& error) {
        EXPECT_EQ(error.rank(), blamed) << error.what();
    }
}

TEST(Crossed, TheAgentsBlameEndsThoseSubGroupsAloneThatHaveTheRank) {
    std::mt19937 random(seed_for_ranks());
    for (const Backend backend : backends_for_the_cpu()) {
        for (int round = 0; round < 6; ++round) {
            const int ranks = 3 + static_cast<int>(draw(random, 4));
            const int blamed = static_cast<int>(draw(random, static_cast<std::uint64_t>(ranks)));
            const Split split(random, ranks);
            SCOPED_TRACE(std::string(to_string(backend)) + ", rank " + std::to_string(blamed) +
                         " of " + std::to_string(ranks));
            const auto body = [&](RankReporter&, const std::function<ProcessGroup()>& join) {
                const contract::ControlRegion region = launchers_region();
                ASSERT_TRUE(region.shared());
                ProcessGroup group = join();
                check_blame(group, region, split, blamed);
            };
            for (const RankFailure& failure :
                 failures_of_ranks(ranks, body, {.init = {.backend = backend, .timeout = 20s}})) {
                ADD_FAILURE() << "rank " << failure.rank << ": " << failure.message;
            }
        }
    }
}

// Elements that `from` sends to `to`, by rank.
using Counts = std::vector<std::vector<std::size_t>>;

// The one that leaves has little to do, often nothing.
Counts random_counts(std::mt19937& random, std::size_t ranks, std::size_t leaver) {
    Counts counts(ranks, std::vector<std::size_t>(ranks));
    for (std::size_t from = 0; from < ranks; ++from) {
        for (std::size_t to = 0; to < ranks; ++to) {
            const bool little = from == leaver || to == leaver;
            const std::size_t most = little ? draw(random, 2) * 10 : draw(random, 3) * 1'000'000;
            counts[from][to] = most == 0 ? 0 : draw(random, most);
        }
    }
    return counts;
}

std::int32_t value(std::size_t from, std::size_t to, std::size_t index) {
    return static_cast<std::int32_t>(1'000'003 * from + 10'007 * to + index);
}

void exchange(ProcessGroup& group, const Counts& counts) {
    const auto me = static_cast<std::size_t>(group.rank());
    std::vector<std::size_t> received;
    std::vector<std::int32_t> input, expected;
    for (std::size_t peer = 0; peer < counts.size(); ++peer) {
        received.push_back(counts[peer][me]);
        for (std::size_t i = 0; i < counts[me][peer]; ++i) input.push_back(value(me, peer, i));
        for (std::size_t i = 0; i < counts[peer][me]; ++i) expected.push_back(value(peer, me, i));
    }
    std::vector<std::int32_t> output(expected.size());
    group.all_to_all(input, output, SplitSizes{counts[me], received}).wait();
    EXPECT_TRUE(output == expected);
}

TEST(Crossed, ARankMayLeaveWhileOthersStillMoveUnevenParts) {
    std::mt19937 random(seed_for_ranks());
    for (const Backend backend : backends_for_the_cpu()) {
        for (const char* const tuning : {"direct_bytes_max=0", read_directly}) {
            const ScopedTuning scoped(tuning);
            for (int round = 0; round < 6; ++round) {
                const std::size_t ranks = 3 + draw(random, 2);
                const Counts counts = random_counts(random, ranks, draw(random, ranks));
                run_ranks(static_cast<int>(ranks),
                          [&](ProcessGroup& group) { exchange(group, counts); },
                          {.init = {.backend = backend, .timeout = 20s}});
            }
            if (backend != Backend::shm) break;  // the tuning is for shm
        }
    }
}

}  // namespace
