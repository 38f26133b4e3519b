// The file layer without a group: what is written comes back, and damage is found before any tensor
// of the caller has changed.
#include "checkpoint/checkpoint_file.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using ddp::checkpoint::read_checkpoint;
using ddp::checkpoint::write_checkpoint;
using testing::HasSubstr;

// A small net's worth of tensors of several dtypes.
struct State {
    std::vector<float> weight = {1, 2, 3, 4, 5, 6};
    std::vector<double> bias = {0.5, -0.25};
    std::vector<std::int64_t> steps = {1'000'000'007};
    std::vector<std::uint8_t> flags = {1, 0, 255};
    float rate = 0.1F;

    std::vector<ddp::NamedTensor> tensors() {
        return {{"model.weight", {weight.data(), {2, 3}, ddp::DType::float32}},
                {"model.bias", bias},
                {"optimizer.flags", flags},
                {"optimizer.steps", steps},
                {"optimizer.rate", {&rate, {}, ddp::DType::float32}}};
    }
    static State zeros() { return {{0, 0, 0, 0, 0, 0}, {0, 0}, {0}, {0, 0, 0}, 0}; }
    friend bool operator==(const State&, const State&) = default;
};

class CheckpointFile : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "ddp-checkpoint-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        dir_ = name;
    }
    void TearDown() override { fs::remove_all(dir_); }

    fs::path file() const { return dir_ / ddp::checkpoint::file_name; }
    std::string bytes() const {
        std::ifstream in{file(), std::ios::binary};
        return {std::istreambuf_iterator<char>(in), {}};
    }
    void put(const std::string& bytes) const {
        std::ofstream out{file(), std::ios::binary};
        out << bytes;
    }
    // What reading throws; checks that nothing was changed.
    std::string error_of_reading() const {
        State state = State::zeros();
        try {
            read_checkpoint(dir_, state.tensors());
        } catch (const ddp::CheckpointError& error) {
            EXPECT_EQ(state, State::zeros());
            return error.what();
        }
        return "no error";
    }

    fs::path dir_;
};

}  // namespace

TEST_F(CheckpointFile, ComesBackBitForBit) {
    State saved;
    write_checkpoint(dir_, 3, saved.tensors());
    State loaded = State::zeros();
    EXPECT_EQ(read_checkpoint(dir_, loaded.tensors()), 3);
    EXPECT_EQ(loaded, saved);
}

TEST_F(CheckpointFile, StandsAloneInItsNewFolder) {
    dir_ /= "a/b";
    State saved;
    write_checkpoint(dir_, 1, saved.tensors());
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(dir_)) files.push_back(entry.path());
    EXPECT_EQ(files, std::vector{file()});
    dir_ = dir_.parent_path().parent_path();
}

TEST_F(CheckpointFile, IsNotThereBeforeTheFirstSave) {
    State state;
    EXPECT_EQ(read_checkpoint(dir_, state.tensors()), std::nullopt);
    EXPECT_EQ(read_checkpoint(dir_ / "absent", state.tensors()), std::nullopt);
}

TEST_F(CheckpointFile, IsReplacedByTheNextSave) {
    State saved;
    write_checkpoint(dir_, 1, saved.tensors());
    saved.weight[0] = 42;
    write_checkpoint(dir_, 2, saved.tensors());
    State loaded = State::zeros();
    EXPECT_EQ(read_checkpoint(dir_, loaded.tensors()), 2);
    EXPECT_EQ(loaded, saved);
}

TEST_F(CheckpointFile, DoesNotMindTheTensorsOrder) {
    State saved;
    write_checkpoint(dir_, 3, saved.tensors());
    State loaded = State::zeros();
    auto tensors = loaded.tensors();
    std::ranges::reverse(tensors);
    EXPECT_EQ(read_checkpoint(dir_, tensors), 3);
    EXPECT_EQ(loaded, saved);
}

TEST_F(CheckpointFile, IsRefusedWhenCutAtAnyByte) {
    State saved;
    write_checkpoint(dir_, 3, saved.tensors());
    const std::string whole = bytes();
    for (std::size_t length = 0; length < whole.size(); ++length) {
        put(whole.substr(0, length));
        EXPECT_THAT(error_of_reading(), HasSubstr(file().string() + " cannot be used"))
            << length << " of " << whole.size() << " bytes";
    }
    put(whole + 'x');
    EXPECT_THAT(error_of_reading(), HasSubstr("cannot be used"));
    put(whole);
    EXPECT_EQ(error_of_reading(), "no error");
}

TEST_F(CheckpointFile, IsRefusedOrUnharmedWhenAnyHeaderByteIsChanged) {
    State saved;
    write_checkpoint(dir_, 3, saved.tensors());
    const std::string whole = bytes();
    const std::size_t header_end = whole.rfind('}') + 1;
    int refused = 0;
    for (std::size_t at = 0; at < header_end; ++at) {
        for (const char damage : {'\0', '9', '"', '{', '\xff'}) {
            std::string damaged = whole;
            damaged[at] = damage;
            if (damaged == whole) continue;
            put(damaged);
            State loaded = State::zeros();
            try {
                read_checkpoint(dir_, loaded.tensors());
                // Only the epoch's own digit can change unseen: checksums are not in the format.
                EXPECT_EQ(loaded, saved) << "byte " << at;
                EXPECT_EQ(whole.substr(at - 9, 10), R"("epoch":"3)") << "byte " << at;
            } catch (const ddp::CheckpointError&) {
                EXPECT_EQ(loaded, State::zeros()) << "byte " << at;
                ++refused;
            }
        }
    }
    EXPECT_GT(refused, 1000);
}

TEST_F(CheckpointFile, NamesTheTensorThatDoesNotFit) {
    State saved;
    write_checkpoint(dir_, 3, saved.tensors());
    State state = State::zeros();
    const auto error_with = [&](std::size_t index, const ddp::NamedTensor& replacement) {
        auto tensors = state.tensors();
        tensors[index] = replacement;
        try {
            read_checkpoint(dir_, tensors);
        } catch (const ddp::CheckpointError& error) {
            EXPECT_EQ(state, State::zeros());
            return std::string(error.what());
        }
        return std::string("no error");
    };
    EXPECT_THAT(error_with(0, {"model.weight", state.weight}),
                HasSubstr("tensor \"model.weight\" is float32 [2, 3] there and float32 [6]"));
    std::vector<std::int32_t> other(6);
    EXPECT_THAT(error_with(0, {"model.weight", {other.data(), {2, 3}, ddp::DType::int32}}),
                HasSubstr("tensor \"model.weight\" is float32 [2, 3] there and int32 [2, 3]"));
    EXPECT_THAT(error_with(1, {"model.offset", state.bias}),
                HasSubstr("has no tensor \"model.offset\""));
    auto fewer = state.tensors();
    fewer.pop_back();
    try {
        read_checkpoint(dir_, fewer);
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("\"optimizer.rate\" that this program has not"));
        EXPECT_EQ(state, State::zeros());
    }
}

TEST_F(CheckpointFile, IsRefusedWhenItIsNoFileOfOurs) {
    put(std::string("\x02\0\0\0\0\0\0\0{}", 10));
    EXPECT_THAT(error_of_reading(), HasSubstr("not a checkpoint of ddp"));
    put(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
    EXPECT_THAT(error_of_reading(), HasSubstr("claims a header of 18446744073709551615 bytes"));
    fs::remove(file());
    fs::create_directory(file());
    EXPECT_THAT(error_of_reading(), HasSubstr("not a regular file"));
    fs::remove(file());
    ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
    EXPECT_THAT(error_of_reading(), HasSubstr("not a regular file"));
}

TEST_F(CheckpointFile, StaysWhenTheNextSaveFails) {
    State saved;
    write_checkpoint(dir_, 1, saved.tensors());
    const std::string before = bytes();
    const fs::path temporary = file().string() + ".tmp";
    fs::create_directories(temporary);  // cannot be opened for writing
    try {
        write_checkpoint(dir_, 2, saved.tensors());
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("cannot create " + temporary.string()));
    }
    EXPECT_EQ(bytes(), before);
}

TEST_F(CheckpointFile, SaysWhyTheFolderCannotBeMade) {
    State saved;
    put("a file, not a folder");
    try {
        write_checkpoint(file() / "folder", 1, saved.tensors());
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("cannot create the folder"));
        EXPECT_THAT(error.what(), HasSubstr("Not a directory"));
    }
}

TEST_F(CheckpointFile, ReplacesALeftOverTemporaryFile) {
    std::ofstream{file().string() + ".tmp"} << std::string(10'000, 'x');
    State saved;
    write_checkpoint(dir_, 1, saved.tensors());
    EXPECT_EQ(error_of_reading(), "no error");
    EXPECT_FALSE(fs::exists(file().string() + ".tmp"));
}

TEST_F(CheckpointFile, RefusesATensorThatIsNotOnTheCpu) {
    State state;
    auto tensors = state.tensors();
    tensors[1].tensor.device = {ddp::DeviceType::cuda, 1};
    try {
        write_checkpoint(dir_, 1, tensors);
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("\"model.bias\" is on cuda:1"));
    }
}
