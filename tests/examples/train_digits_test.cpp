// The digits example as a whole: it learns, ranks agree to the bit, curves of different numbers of
// ranks agree, checkpoints resume with the same bits, and bad input is one clear line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "examples/run_program.hpp"

namespace {

namespace fs = std::filesystem;
using namespace ddp::tests;
using testing::HasSubstr;

// What a run printed.
struct Training {
    std::vector<double> losses;        // by epoch, of those that ran
    std::map<int, double> accuracies;  // by rank
    std::set<std::string> weights;     // the digests: one when all ranks agree
    std::string err;
};

Training parse(const ProgramResult& result, int ranks) {
    Training training;
    training.err = result.err;
    int last_epoch = 0;
    for (const std::string& line : lines_of(result.err)) {
        int epoch = 0;
        double loss = 0;
        int end = 0;
        if (std::sscanf(line.c_str(), "epoch %d loss %lf%n", &epoch, &loss, &end) < 2) continue;
        EXPECT_EQ(line.size(), static_cast<std::size_t>(end)) << line;
        EXPECT_TRUE(last_epoch == 0 || epoch == last_epoch + 1) << line;
        last_epoch = epoch;
        training.losses.push_back(loss);
    }
    for (const std::string& line : lines_of(result.out)) {
        int rank = -1;
        int of = -1;
        double accuracy = -1;
        std::array<char, 17> weights{};
        const int fields =
            std::sscanf(line.c_str(), "rank %d of %d: accuracy %6lf weights %16[0-9a-f]", &rank,
                        &of, &accuracy, weights.data());
        EXPECT_EQ(fields, 4) << "unexpected line on stdout: " << line;
        EXPECT_EQ(of, ranks);
        EXPECT_TRUE(line.ends_with(std::string(" ") + weights.data())) << line;
        EXPECT_EQ(std::string(weights.data()).size(), 16U) << line;
        training.accuracies[rank] = accuracy;
        training.weights.insert(weights.data());
    }
    return training;
}

ProgramResult start_training(int ranks, const Command& options) {
    Command command{example("03_train_digits")};
    command.insert(command.end(), options.begin(), options.end());
    return run_ranks_of(ranks, command);
}

// Expects success, a result line of each rank and one digest.
Training train(int ranks, const Command& options) {
    const auto result = start_training(ranks, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Training training = parse(result, ranks);
    EXPECT_EQ(training.accuracies.size(), static_cast<std::size_t>(ranks)) << result.out;
    EXPECT_EQ(training.weights.size(), 1U) << result.out;
    return training;
}

class TrainDigits : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "ddp-digits-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        dir_ = name;
    }
    void TearDown() override { fs::remove_all(dir_); }

    std::string folder(const std::string& name) const { return (dir_ / name).string(); }

    fs::path dir_;
};

class TrainDigitsRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, TrainDigitsRanks, testing::Range(1, 5));

}  // namespace

TEST_P(TrainDigitsRanks, LearnAndEndWithTheSameBits) {
    const Training training = train(GetParam(), {});
    EXPECT_EQ(training.losses.size(), 30U);
    EXPECT_LT(training.losses.back(), training.losses.front() / 10);
    for (const auto& [rank, accuracy] : training.accuracies) {
        EXPECT_GE(accuracy, 0.95) << "rank " << rank;
    }
}

TEST_P(TrainDigitsRanks, HaveTheLossCurveOfOneRankWithTheSameGlobalBatch) {
    const Training alone = train(1, {"--global-batch", "48"});
    const Training shared = train(GetParam(), {"--global-batch=48"});
    ASSERT_EQ(alone.losses.size(), 30U);
    ASSERT_EQ(shared.losses.size(), alone.losses.size());
    for (std::size_t i = 0; i < alone.losses.size(); ++i) {
        EXPECT_NEAR(shared.losses[i], alone.losses[i], 1e-4 * alone.losses[i]) << "epoch " << i + 1;
    }
}

TEST_F(TrainDigits, GivesTheSameBitsInEachRun) {
    const Training first = train(3, {"--epochs", "5"});
    const Training second = train(3, {"--epochs", "5"});
    EXPECT_EQ(first.weights, second.weights);
    EXPECT_EQ(first.losses, second.losses);
}

TEST_F(TrainDigits, GivesTheSameBitsForEveryNumberOfRanksWithLogicalRanks) {
    const Command options{"--epochs", "5", "--logical-ranks", "8", "--global-batch", "64"};
    const Training eight = train(8, options);
    for (const int ranks : {1, 2, 4}) {
        EXPECT_EQ(train(ranks, options).weights, eight.weights) << ranks << " ranks";
    }
}

TEST_F(TrainDigits, ResumesAtAnotherNumberOfRanksWithTheSameBits) {
    const auto options = [&](const char* epochs) {
        return Command{"--epochs",       epochs, "--logical-ranks", "8",
                       "--global-batch", "64",   "--checkpoint",    folder("run")};
    };
    train(2, options("1"));
    train(8, options("2"));
    train(1, options("4"));
    const Training last = train(4, options("5"));
    const Training whole =
        train(2, {"--epochs", "5", "--logical-ranks", "8", "--global-batch", "64"});
    EXPECT_EQ(last.weights, whole.weights);
}

// Killed at random, launcher and all, and resumed at another number of ranks.
TEST_F(TrainDigits, SoakKilledRunsGiveTheBitsOfOneThatWasNot) {
    if (std::string(DDP_LAUNCH).empty()) GTEST_SKIP() << "ddp-launch is not built";
    const Command options{"--epochs", "30", "--logical-ranks", "8", "--global-batch", "64"};
    const Training whole = train(2, options);
    std::mt19937 random(std::random_device{}());
    for (int run = 0; run < 20; ++run) {
        const std::string checkpoint = folder("run" + std::to_string(run));
        const int ranks = 1 << random() % 4;
        const double seconds = 0.05 + 0.001 * static_cast<double>(random() % 800);
        run_program({"timeout", "-s", "KILL", std::to_string(seconds), DDP_LAUNCH,
                     "--nproc-per-node=" + std::to_string(ranks), example("03_train_digits"),
                     "--checkpoint", checkpoint, "--epochs", "30", "--logical-ranks", "8",
                     "--global-batch", "64"});
        Command resumed = options;
        resumed.insert(resumed.end(), {"--checkpoint", checkpoint});
        const int others = ranks == 8 ? 1 : 2 * ranks;
        EXPECT_EQ(train(others, resumed).weights, whole.weights)
            << ranks << " ranks killed after " << seconds << " s, " << others << " resumed";
    }
}

TEST_F(TrainDigits, RefusesLogicalRanksThatTheRanksCannotShare) {
    const auto result = start_training(2, {"--logical-ranks", "3"});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("3 logical ranks cannot be shared by 2 ranks"));
}

// A wider net than the example's: ten million parameters, twenty steps.
TEST(WideMlp, SoakGivesTheSameBitsForEveryNumberOfRanksWithLogicalRanks) {
    std::set<std::string> digests;
    for (const int ranks : {1, 2, 4, 8}) {
        const auto result = run_ranks_of(ranks, {WIDE_MLP});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        const auto lines = lines_of(result.out);
        EXPECT_EQ(lines.size(), static_cast<std::size_t>(ranks)) << result.out;
        digests.insert(lines.begin(), lines.end());
    }
    EXPECT_EQ(digests.size(), 1U) << *digests.begin() << " and others";
}

TEST_F(TrainDigits, ResumesWithTheBitsOfAnUninterruptedRun) {
    const Training whole = train(2, {"--epochs", "6"});
    const Training first = train(2, {"--epochs", "2", "--checkpoint", folder("run")});
    const Training second = train(2, {"--epochs", "6", "--checkpoint", folder("run")});
    EXPECT_NE(first.weights, whole.weights);
    EXPECT_EQ(second.weights, whole.weights);
    EXPECT_EQ(second.losses.size(), 4U);
    EXPECT_EQ(second.losses.back(), whole.losses.back());
}

TEST_F(TrainDigits, HasNothingToDoForAFinishedCheckpoint) {
    const std::string run = folder("run");
    const Training done = train(2, {"--epochs", "2", "--checkpoint", run});
    const Training again = train(2, {"--epochs", "2", "--checkpoint", run});
    EXPECT_THAT(lines_of(again.err), testing::Contains("nothing to do: epoch 2 of 2 in " + run));
    EXPECT_TRUE(again.losses.empty());
    EXPECT_EQ(again.weights, done.weights);
    EXPECT_EQ(again.accuracies, done.accuracies);
}

TEST_F(TrainDigits, SaysOnEveryRankThatACheckpointIsDamaged) {
    const std::string run = folder("run");
    train(2, {"--epochs", "1", "--checkpoint", run});
    const fs::path file = dir_ / "run/checkpoint-1.safetensors";
    fs::resize_file(file, fs::file_size(file) - 1);
    const auto result = run_ranks_by_hand(2, {example("03_train_digits"), "--checkpoint", run});
    EXPECT_NE(result.exit_code, 0);
    int messages = 0;
    for (const std::string& line : lines_of(result.err)) {
        if (line.find(file.string() + " cannot be used") != std::string::npos) ++messages;
    }
    EXPECT_EQ(messages, 2) << result.err;
    EXPECT_EQ(result.out, "");
}

TEST_F(TrainDigits, NamesTheLineOfACorruptFile) {
    fs::create_directory(folder("data"));
    std::string row;
    for (int pixel = 0; pixel < 64; ++pixel) row += "7,";
    // Uncompressed: zlib reads it as it is.
    std::ofstream{folder("data/digits.csv.gz")} << row << "3\n" << row << "12\n";
    const auto result = start_training(2, {"--data", folder("data")});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("line 2 of " + folder("data/digits.csv.gz") +
                                      " is wrong: field 65 is '12'"));
    EXPECT_EQ(result.out, "");
}

TEST_F(TrainDigits, SaysWhereItLookedForTheData) {
    const auto result = run_program({example("03_train_digits"), "--data", folder("none")});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("cannot open " + folder("none/digits.csv.gz")));
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
}

TEST_F(TrainDigits, RefusesAGlobalBatchThatRanksCannotShare) {
    const auto result = start_training(2, {"--global-batch", "49"});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("--global-batch 49 cannot be divided among 2 ranks"));
}

TEST_F(TrainDigits, RefusesWhatItDoesNotUnderstandInOneLine) {
    const std::vector<std::pair<Command, std::string>> cases{
        {{"--epoch", "3"}, "unknown option '--epoch'"},
        {{"30"}, "unknown option '30'"},
        {{"--epochs"}, "--epochs needs a value"},
        {{"--epochs="}, "--epochs needs a value"},
        {{"--epochs", "0"}, "--epochs needs a whole number of at least 1, not '0'"},
        {{"--epochs", "3x"}, "not '3x'"},
        {{"--epochs", "-1"}, "not '-1'"},
        {{"--global-batch", "99999999999999999999"}, "not '99999999999999999999'"},
        {{"--global-batch", "2000"}, "leaves no batch of 1437 samples"},
    };
    for (const auto& [options, message] : cases) {
        Command command{example("03_train_digits")};
        command.insert(command.end(), options.begin(), options.end());
        const auto result = run_program(command);
        EXPECT_EQ(result.exit_code, 1) << message;
        EXPECT_THAT(result.err, HasSubstr(message));
        EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
        EXPECT_EQ(result.out, "");
    }
}

TEST_F(TrainDigits, ListsItsOptions) {
    const auto result = run_program({example("03_train_digits"), "--help"});
    EXPECT_EQ(result.exit_code, 0);
    for (const char* option :
         {"--data", "--epochs", "--global-batch", "--logical-ranks", "--checkpoint"}) {
        EXPECT_THAT(result.out, HasSubstr(option));
    }
}
