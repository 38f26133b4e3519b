// The table that chooses paths: what it gives, what the environment changes, what is refused.
#include "backends/shm/tuning.hpp"

#include "backends/shm/tuning_file.hpp"
#include "base/cpu_features.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

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

constexpr const char* three_rows =
    "# of two hosts\n"
    "\n"
    "Maker/1/2 ranks=2 cores=2 spins=1\n"
    "  Maker/1/2 \t ranks=8 cores=2 spins=2  \r\n"
    "Maker/1/2 ranks=4 cores=2 spins=3\n"
    "Maker/1/2 ranks=4 cores=1 spins=4\n"
    "Other/1/2 ranks=64 cores=64 spins=5,yield_us=6";

std::string find(int ranks, int cores, const char* processor = "Maker/1/2") {
    return ddp::shm::find_overrides(three_rows, "FILE", processor, ranks, cores);
}

TEST(TuningFile, GivesTheRowOfTheFewestRanksThatAreEnough) {
    EXPECT_EQ(find(2, 2), "spins=1");
    EXPECT_EQ(find(2, 64), "spins=1") << "no more ranks than cores, either";
    EXPECT_EQ(find(3, 4), "") << "the rows with more ranks are of ranks that share cores";
    EXPECT_EQ(find(3, 2), "spins=3") << "of two rows of four ranks that with two cores";
    EXPECT_EQ(find(4, 1), "spins=4");
    EXPECT_EQ(find(5, 2), "spins=2");
    EXPECT_EQ(find(9, 2), "");
    EXPECT_EQ(find(3, 64, "Other/1/2"), "spins=5,yield_us=6");
    EXPECT_EQ(find(2, 2, "Maker/1/3"), "");
    EXPECT_EQ(ddp::shm::find_overrides("", "FILE", "Maker/1/2", 2, 2), "");
}

TEST(TuningFile, ARowWithoutOverridesStandsForTheBuiltInTable) {
    EXPECT_EQ(ddp::shm::find_overrides("M ranks=2 cores=8\nM ranks=8 cores=8 spins=1\n", "FILE",
                                       "M", 2, 8),
              "");
}

TEST(TuningFile, TakesARowInThePlaceOfTheOneOfTheSameHost) {
    const std::string text = "# a\n M\tranks=2   cores=2 spins=1\nM ranks=8 cores=2 spins=2";
    const auto replace = [&](int ranks, const char* overrides) {
        return ddp::shm::replace_row(text, "FILE", "M", ranks, 2, overrides);
    };
    EXPECT_EQ(replace(2, "spins=7"), "# a\nM ranks=2 cores=2 spins=7\nM ranks=8 cores=2 spins=2\n");
    EXPECT_EQ(replace(8, ""), "# a\n M\tranks=2   cores=2 spins=1\nM ranks=8 cores=2\n");
    EXPECT_EQ(replace(4, "spins=3"), text + "\nM ranks=4 cores=2 spins=3\n");
    EXPECT_EQ(ddp::shm::replace_row("", "FILE", "M", 2, 2, "spins=1"),
              "M ranks=2 cores=2 spins=1\n");
    EXPECT_THROW(ddp::shm::replace_row("x\n", "FILE", "M", 2, 2, ""), ddp::UsageError);
}

TEST(TuningFile, SaysWhichLineIsWrong) {
    const std::pair<const char*, const char*> wrong[] = {
        {"# a\nM ranks=0 cores=2 spins=1\n", "FILE:2: 'ranks=0' is not ranks= with a number"},
        {"M ranks=2x cores=2 spins=1\n", "'ranks=2x' is not ranks="},
        {"M ranks=2 spins=1\n", "'spins=1' is not cores="},
        {"M\n", "'' is not ranks="},
        {"M ranks=2\n", "FILE:1: '' is not cores="},
        {"M ranks=2 cores=99999999999 spins=1\n", "is not cores="},
        {"M ranks=2 cores=2 spins=1 spins=2\n", "'spins=2' is one word too many"},
        {"M ranks=2 cores=2 speed=9\n", "FILE:1: DDP_SHM_TUNING: 'speed=9' is not one of"},
        {"M ranks=2 cores=2 spins=1\n\nM ranks=2 cores=2 spins=2\n", "FILE:3: a row before"},
    };
    for (const auto& [text, why] : wrong) {
        try {
            ddp::shm::find_overrides(text, "FILE", "another", 2, 2);
            ADD_FAILURE() << "took " << text;
        } catch (const ddp::UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr(why)) << text;
        }
    }
}

class TuningFileOf : public testing::Test {
protected:
    void SetUp() override {
        std::string name = std::filesystem::temp_directory_path() / "ddp-tuning-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    std::string file(const std::string& name) const { return folder_ / name; }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(file(name)) << text;
        return file(name);
    }
    // Of two ranks on two cores, as DDP_SHM_TUNING is.
    std::string overrides(const char* variable, const std::string& system_file) const {
        return ddp::shm::overrides_for(variable, system_file.c_str(), 2, 2);
    }
    static std::string row_of_this_processor(const std::string& tuning) {
        return ddp::base::processor_name() + " ranks=2 cores=2 " + tuning + "\n";
    }

private:
    std::filesystem::path folder_;
};

TEST_F(TuningFileOf, TheSystemHoldsWhereTheVariableIsNotSet) {
    const auto system_file = write("system", row_of_this_processor("spins=1"));
    const auto named = "@" + write("named", row_of_this_processor("spins=2"));
    EXPECT_EQ(overrides(nullptr, system_file), "spins=1");
    EXPECT_EQ(overrides("spins=3", system_file), "spins=3");
    EXPECT_EQ(overrides("", system_file), "") << "set, and empty: the built-in table";
    EXPECT_EQ(overrides(named.c_str(), system_file), "spins=2");
    EXPECT_EQ(overrides(nullptr, file("absent")), "");
    EXPECT_EQ(overrides(nullptr, system_file + "/below"), "");
}

TEST_F(TuningFileOf, AnyKindIsRefusedWhenItCannotBeRead) {
    const auto refusal = [&](const char* variable, const std::string& system_file) -> std::string {
        try {
            overrides(variable, system_file);
        } catch (const ddp::UsageError& error) {
            return error.what();
        }
        return "taken";
    };
    EXPECT_THAT(refusal(("@" + file("absent")).c_str(), file("absent")),
                HasSubstr("DDP_SHM_TUNING: cannot open " + file("absent")));
    EXPECT_THAT(refusal("@", file("absent")), HasSubstr("cannot open"));
    EXPECT_THAT(refusal(nullptr, file("")), HasSubstr("DDP_SHM_TUNING: this is no regular file: "));
    ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
    EXPECT_THAT(refusal(nullptr, file("pipe")),
                HasSubstr("DDP_SHM_TUNING: this is no regular file: "));
    const auto large = write("large", std::string(ddp::shm::most_tuning_file_bytes + 1, '\n'));
    EXPECT_THAT(refusal(nullptr, large), HasSubstr("has more than 256 KiB"));
    EXPECT_THAT(refusal(nullptr, write("wrong", "x\n")), HasSubstr(file("wrong") + ":1: "));
}

}  // namespace
