// How each kind of end reaches every rank, of any backend: in a world of the given options.
#pragma once

#include <ddp/error.hpp>
#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace ddp::testing {

// Of four ranks; `odd` is not 0.
inline void expect_different_calls_told(int odd, const RunRanksOptions& options) {
    run_ranks(
        4,
        [&](ProcessGroup& group) {
            std::vector<float> values(group.rank() == odd ? 64 : 128);
            try {
                group.all_reduce(values).wait();
                ADD_FAILURE() << "went on";
            } catch (const UsageError& error) {
                EXPECT_THAT(error.what(),
                            ::testing::HasSubstr("rank 0 called all_reduce of 128 float32 (sum), "
                                                 "rank " +
                                                 std::to_string(odd) +
                                                 " called all_reduce of 64 float32 (sum)"));
            }
            EXPECT_THROW(group.barrier().wait(), UsageError);
        },
        options);
}

// Of three ranks.
inline void expect_different_counts_told(const RunRanksOptions& options) {
    run_ranks(
        3,
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
                EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 2 sends 2 elements to rank 1, "
                                                               "which receives 7"));
            }
        },
        options);
}

// `killed` is the rank that options.may_die has; it ends so long after all have left init.
inline void expect_killed_rank_named(int ranks, std::chrono::microseconds delay,
                                     const RunRanksOptions& options) {
    const int killed = options.may_die.front();
    run_ranks(
        ranks,
        [&](ProcessGroup& group) {
            std::jthread killer;
            std::vector<float> values(500'000);
            const auto sum = static_cast<float>(2 * group.size());
            try {
                group.all_reduce(1);  // afterwards all ranks have left init
                if (group.rank() == killed) {
                    killer = std::jthread([&] {
                        std::this_thread::sleep_for(delay);
                        ::raise(SIGKILL);
                    });
                }
                for (;;) {
                    std::fill(values.begin(), values.end(), 1.0F);
                    group.all_reduce(values).wait();
                    ASSERT_EQ(values.front() + values.back(), sum) << "a wrong sum";
                }
            } catch (const PeerError& error) {
                EXPECT_EQ(error.rank(), killed) << error.what();
            }
        },
        options);
}

}  // namespace ddp::testing
