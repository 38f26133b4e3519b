// The table that chooses paths: what it gives, what the environment changes, what is refused.
#include "backends/shm/tuning.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using ddp::shm::make_tuning;
using ::testing::HasSubstr;

TEST(Tuning, HasARowForAnyRanksAndCores) {
    for (const int cores : {1, 2, 64, 1'000}) {
        for (int ranks = 1; ranks <= 65'536; ranks = ranks * 2 + ranks % 3) {
            const auto tuning = make_tuning(ranks, cores, "");
            EXPECT_EQ(tuning.staged.chunk_bytes % 4'096, 0U);
            EXPECT_GE(tuning.staged.chunk_bytes, static_cast<std::uint64_t>(ranks) * 64)
                << "a line of each rank's share";
            EXPECT_LE(tuning.staged.one_phase_bytes, tuning.staged.chunk_bytes)
                << "it goes through one slot";
        }
    }
}

TEST(Tuning, SpinsLessWhereRanksOutnumberCores) {
    EXPECT_LT(make_tuning(3, 2, "").waiting.spins, make_tuning(2, 2, "").waiting.spins);
    EXPECT_LT(make_tuning(2, 1, "").waiting.spins, make_tuning(2, 2, "").waiting.spins);
}

// All rows of a table have the same room.
TEST(Tuning, DividesACoresRoomAmongItsRanks) {
    const auto alone = make_tuning(2, 2, "").coloring.footprint_bytes;
    EXPECT_EQ(make_tuning(3, 2, "").coloring.footprint_bytes, alone / 2);
    EXPECT_EQ(make_tuning(8, 2, "").coloring.footprint_bytes, alone / 4);
    EXPECT_EQ(make_tuning(64, 64, "").coloring.footprint_bytes, alone);
    EXPECT_EQ(make_tuning(8, 2, "rotating_room=5").coloring.footprint_bytes, 5U);
}

TEST(Tuning, IsOverriddenFieldByField) {
    const auto table = make_tuning(2, 2, "");
    auto expected = table;
    expected.waiting.spins = 7;
    EXPECT_EQ(make_tuning(2, 2, "spins=7"), expected);
    const auto all = make_tuning(
        2, 2,
        "chunk_bytes=8K,one_phase_bytes=64,spins=0,direct_bytes_max=4K,"
        "direct_bytes_min=1,direct_exchange_bytes_max=2K,direct_reduction_bytes_max=3K,"
        "streaming_gain_ps=5,streaming_output_bytes=2M,rotating_bytes=6,rotating_room=8,"
        "swapped_slots=11,claims_outputs=7,string_bytes=10,pipelined_bytes=4K,yield_us=9");
    EXPECT_EQ(all, (ddp::shm::Tuning{.staged = {64, 8'192, 4'096},
                                     .streaming = {5, 2'097'152},
                                     .coloring = {6, 8, 11},
                                     .copying = {7, 10},
                                     .direct = {1, 4'096, 2'048, 3'072},
                                     .waiting = {0, 9}}));
    EXPECT_EQ(make_tuning(2, 2, "chunk_bytes=8K,chunk_bytes=16k").staged.chunk_bytes, 16'384U)
        << "the last one counts";
    EXPECT_EQ(make_tuning(2, 2, "spins=7,"), expected);
}

TEST(Tuning, KeepsWhatTheLayoutNeeds) {
    EXPECT_EQ(make_tuning(2, 2, "chunk_bytes=5000").staged.chunk_bytes, 8'192U) << "whole pages";
    EXPECT_EQ(make_tuning(200, 2, "chunk_bytes=4K").staged.chunk_bytes, 16'384U) << "a line a rank";
    EXPECT_EQ(make_tuning(2, 2, "one_phase_bytes=1M,chunk_bytes=4K").staged.one_phase_bytes,
              4'096U);
    EXPECT_EQ(make_tuning(2, 2, "pipelined_bytes=0").staged.pipelined_bytes, 4'096U);
    EXPECT_EQ(make_tuning(2, 2, "pipelined_bytes=1M,chunk_bytes=20K").staged.pipelined_bytes,
              20'480U);
    EXPECT_EQ(make_tuning(200, 2, "pipelined_bytes=5000").staged.pipelined_bytes, 16'384U);
}

TEST(Tuning, RefusesWhatItDoesNotKnow) {
    for (const char* const wrong :
         {"chunk=4K", "spins", "spins=", "spins=-1", "spins=1G", "yield_us=1000001", "spins=7x",
          "spins= 7", ",", "chunk_bytes=4K;spins=1", "chunk_bytes=100", "chunk_bytes=65M",
          "chunk_bytes=0", "spins=99999999999999999999", "chunk_bytes=99999999999M", "=4K",
          " spins=1"}) {
        try {
            make_tuning(2, 2, wrong);
            ADD_FAILURE() << "took " << wrong;
        } catch (const ddp::UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("DDP_SHM_TUNING: '")) << wrong;
        }
    }
}

TEST(Tuning, NamesTheEntryThatIsWrong) {
    try {
        make_tuning(2, 2, "spins=7,chunk_bytes=lots");
        FAIL() << "took it";
    } catch (const ddp::UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("'chunk_bytes=lots' needs a number of bytes"));
    }
}

}  // namespace
