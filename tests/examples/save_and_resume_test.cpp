// The examples of state that survives: 08_save_and_load prints what its head promises, and
// 11_survive_a_crash ends with the same weights however often and wherever it is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "examples/run_program.hpp"
#include "support/seed.hpp"

namespace {

namespace fs = std::filesystem;
using namespace ddp::tests;
using testing::HasSubstr;

class SurviveACrash : public testing::Test {
protected:
    void SetUp() override {
        if (std::string(DDP_LAUNCH).empty()) GTEST_SKIP() << "ddp-launch is not built";
        std::string name = (fs::temp_directory_path() / "ddp-crash-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        dir_ = name;
    }
    void TearDown() override {
        if (!dir_.empty()) fs::remove_all(dir_);
    }

    ProgramResult run(int ranks, const std::string& folder, int kills, unsigned seed = 0) const {
        return run_program({DDP_LAUNCH, "--nproc-per-node=" + std::to_string(ranks),
                            "--max-restarts=" + std::to_string(kills), "--",
                            example("11_survive_a_crash"), dir_ / folder, std::to_string(kills),
                            std::to_string(seed)});
    }
    // The digest that all ranks print.
    static std::string weights_of(const ProgramResult& result) {
        std::set<std::string> digests;
        for (const std::string& line : lines_of(result.out)) {
            digests.insert(line.substr(line.rfind(' ') + 1));
        }
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(digests.size(), 1U) << result.out;
        return digests.empty() ? "" : *digests.begin();
    }

    fs::path dir_;
};

// The lines that say where an attempt begins; the launcher's report quotes some of them.
std::vector<std::string> attempts_of(const ProgramResult& result) {
    std::vector<std::string> attempts;
    for (const std::string& line : lines_of(result.err)) {
        if (line.starts_with("attempt ")) attempts.push_back(line);
    }
    return attempts;
}

}  // namespace

TEST(SaveAndLoadExample, PrintsWhatItsHeadPromises) {
    const auto result = run_program({example("08_save_and_load")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 3U) << result.out;
    EXPECT_THAT(lines[0], testing::StartsWith("as it is: state dict: it does not fit; nothing was "
                                              "changed. Missing key(s) in state_dict: "
                                              "\"layers.0.weight\", "));
    EXPECT_THAT(lines[0], HasSubstr("{.strip_prefix = \"module.\"}"));
    EXPECT_EQ(lines[1], "without the prefix: accuracy 0.9778, as in Python");
    EXPECT_EQ(lines[2], "saved and loaded again: the same weights");
}

TEST_F(SurviveACrash, EndsWithTheWeightsOfAQuietRun) {
    const auto disturbed = run(2, "disturbed", 3);
    const auto attempts = attempts_of(disturbed);
    ASSERT_EQ(attempts.size(), 4U) << disturbed.err;
    EXPECT_EQ(attempts[0], "attempt 0 begins at epoch 0, sample 0");
    for (std::size_t i = 1; i < attempts.size(); ++i) {
        EXPECT_THAT(attempts[i], testing::Not(HasSubstr(", sample 0"))) << "not in an epoch";
    }
    EXPECT_EQ(weights_of(disturbed), weights_of(run(4, "quiet", 0)));
}

TEST_F(SurviveACrash, GoesOnWithAnotherNumberOfRanksInTheMiddleOfAnEpoch) {
    const auto killed = run_program({DDP_LAUNCH, "--nproc-per-node=2", "--",
                                     example("11_survive_a_crash"), dir_ / "moved", "1"});
    EXPECT_NE(killed.exit_code, 0);
    const auto resumed = run(4, "moved", 0);
    EXPECT_THAT(resumed.err, testing::Not(HasSubstr(", sample 0\n")));
    EXPECT_EQ(weights_of(resumed), weights_of(run(1, "quiet", 0)));
}

TEST_F(SurviveACrash, SoakTwentyRandomKillsLeaveTheWeightsOfAQuietRun) {
    const unsigned seed = ddp::store_test::random_seed();
    const std::string quiet = weights_of(run(2, "quiet", 0));
    for (unsigned round = 0; round < 5; ++round) {
        const auto disturbed = run(2, "disturbed" + std::to_string(round), 4, seed + 100 * round);
        EXPECT_EQ(weights_of(disturbed), quiet);
        EXPECT_EQ(attempts_of(disturbed).size(), 5U) << disturbed.err;
    }
}
