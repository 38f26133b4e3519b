// The folder without a group, on the real disk: what is written comes back, the newest valid one
// wins, and damage is found before any tensor of the caller has changed.
#include "checkpoint/checkpoint_folder.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
using ddp::Progress;
using ddp::checkpoint::CheckpointFolder;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

// All calls as they are, but for what a test overrides.
class ForwardedFiles : public ddp::checkpoint::Files {
public:
    int create(Path path) override { return real_.create(path); }
    int open(Path path) override { return real_.open(path); }
    int status(int fd, ddp::checkpoint::FileStatus& status) override {
        return real_.status(fd, status);
    }
    ssize_t read(int fd, std::span<std::byte> bytes) override { return real_.read(fd, bytes); }
    ssize_t write(int fd, std::span<const std::byte> bytes) override {
        return real_.write(fd, bytes);
    }
    int start_writeback(int fd, std::uint64_t offset, std::uint64_t bytes) override {
        return real_.start_writeback(fd, offset, bytes);
    }
    int sync(int fd) override { return real_.sync(fd); }
    int close(int fd) override { return real_.close(fd); }
    int rename(Path from, Path to) override { return real_.rename(from, to); }
    int remove(Path path) override { return real_.remove(path); }
    int make_directory(Path path) override { return real_.make_directory(path); }
    int sync_directory(Path path) override { return real_.sync_directory(path); }
    int list(Path path, std::vector<std::string>& names) override {
        return real_.list(path, names);
    }
    int lock_directory(Path path) override { return real_.lock_directory(path); }

private:
    ddp::checkpoint::Files& real_ = ddp::checkpoint::system_files();
};

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

class Checkpoints : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "ddp-checkpoint-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        dir_ = name;
    }
    void TearDown() override { fs::remove_all(dir_); }

    CheckpointFolder folder(std::size_t keep_last = 2) const {
        return {ddp::checkpoint::system_files(), dir_, keep_last};
    }
    void save(int epoch, State state = {}) const {
        CheckpointFolder{ddp::checkpoint::system_files(), dir_, 2}.write({.epoch = epoch},
                                                                         state.tensors());
    }
    std::optional<Progress> load(State& state) const { return folder().read(state.tensors()); }

    fs::path file(int number = 1) const {
        return dir_ / CheckpointFolder::tensors_name(number_of(number));
    }
    fs::path manifest(int number = 1) const {
        return dir_ / CheckpointFolder::manifest_name(number_of(number));
    }
    static std::uint64_t number_of(int number) { return static_cast<std::uint64_t>(number); }
    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(dir_)) {
            names.push_back(entry.path().filename());
        }
        return names;
    }
    static std::string bytes_of(const fs::path& path) {
        std::ifstream in{path, std::ios::binary};
        return {std::istreambuf_iterator<char>(in), {}};
    }
    static void put(const fs::path& path, const std::string& bytes) {
        std::ofstream out{path, std::ios::binary};
        out << bytes;
    }
    // What reading throws; checks that nothing was changed.
    std::string error_of_reading() const {
        State state = State::zeros();
        try {
            load(state);
        } catch (const ddp::CheckpointError& error) {
            EXPECT_EQ(state, State::zeros());
            return error.what();
        }
        return "no error";
    }

    fs::path dir_;
};

}  // namespace

TEST_F(Checkpoints, ComeBackBitForBit) {
    State saved;
    const Progress progress{.epoch = 3, .samples = 128, .step = 777};
    folder().write(progress, saved.tensors());
    State loaded = State::zeros();
    EXPECT_EQ(load(loaded), progress);
    EXPECT_EQ(loaded, saved);
}

TEST_F(Checkpoints, StandAloneInTheirNewFolder) {
    const fs::path above = dir_;
    dir_ /= "a/b";
    save(1);
    EXPECT_THAT(names(), UnorderedElementsAre("checkpoint-1.safetensors", "checkpoint-1.manifest"));
    dir_ = above;
}

TEST_F(Checkpoints, AreNotThereBeforeTheFirstSave) {
    State state;
    EXPECT_EQ(load(state), std::nullopt);
    dir_ /= "absent";
    EXPECT_EQ(load(state), std::nullopt);
    dir_ = dir_.parent_path();
}

TEST_F(Checkpoints, AreTheNewestSavedAndAsManyAsWanted) {
    auto keeps_two = folder(2);
    State saved;
    for (int epoch = 1; epoch <= 12; ++epoch) {
        saved.weight[0] = static_cast<float>(epoch);
        keeps_two.write({.epoch = epoch}, saved.tensors());
        EXPECT_EQ(names().size(), epoch == 1 ? 2U : 4U);
    }
    EXPECT_THAT(names(),
                UnorderedElementsAre("checkpoint-11.safetensors", "checkpoint-11.manifest",
                                     "checkpoint-12.safetensors", "checkpoint-12.manifest"));
    State loaded = State::zeros();
    EXPECT_EQ(load(loaded), Progress{.epoch = 12});
    EXPECT_EQ(loaded, saved);
}

TEST_F(Checkpoints, DoNotMindTheTensorsOrder) {
    save(3);
    State loaded = State::zeros();
    auto tensors = loaded.tensors();
    std::ranges::reverse(tensors);
    EXPECT_EQ(folder().read(tensors), Progress{.epoch = 3});
    EXPECT_EQ(loaded, State{});
}

TEST_F(Checkpoints, AreRefusedWhenEitherFileIsCutAtAnyByte) {
    save(3);
    for (const fs::path& path : {file(), manifest()}) {
        const std::string whole = bytes_of(path);
        for (std::size_t length = 0; length < whole.size(); ++length) {
            put(path, whole.substr(0, length));
            EXPECT_THAT(error_of_reading(), HasSubstr(file().string() + " cannot be used"))
                << length << " of " << whole.size() << " bytes";
        }
        put(path, whole + 'x');
        EXPECT_THAT(error_of_reading(), HasSubstr("cannot be used"));
        put(path, whole);
        EXPECT_EQ(error_of_reading(), "no error");
    }
}

TEST_F(Checkpoints, AreRefusedWhenAnyByteIsChanged) {
    save(3);
    for (const fs::path& path : {file(), manifest()}) {
        const std::string whole = bytes_of(path);
        for (std::size_t at = 0; at < whole.size(); ++at) {
            for (const char damage : {'\0', '9', '"', '{', '\xff'}) {
                std::string damaged = whole;
                damaged[at] = damage;
                if (damaged == whole) continue;
                put(path, damaged);
                EXPECT_THAT(error_of_reading(), HasSubstr("cannot be used")) << "byte " << at;
            }
        }
        put(path, whole);
    }
}

TEST_F(Checkpoints, AreSkippedWhenDamagedAndThenTheOneBeforeWins) {
    save(1);
    State second;
    second.weight[0] = 42;
    save(2, second);
    put(file(2), bytes_of(file(2)).replace(200, 1, "?"));
    State loaded = State::zeros();
    testing::internal::CaptureStderr();
    EXPECT_EQ(load(loaded), Progress{.epoch = 1});
    const std::string warning = testing::internal::GetCapturedStderr();
    EXPECT_EQ(loaded, State{});
    EXPECT_THAT(warning, HasSubstr(file(2).string() + " cannot be used: its checksum is wrong"));
    EXPECT_EQ(std::ranges::count(warning, '\n'), 1) << warning;
}

TEST_F(Checkpoints, ThatAreDamagedDoNotCountAsKept) {
    save(1);
    save(2);
    fs::remove(file(2));
    auto resumed = folder(2);
    State state;
    EXPECT_EQ(resumed.read(state.tensors()), Progress{.epoch = 1});
    resumed.write({.epoch = 2}, state.tensors());
    EXPECT_TRUE(fs::exists(file(1)));
    resumed.write({.epoch = 3}, state.tensors());
    EXPECT_THAT(names(), UnorderedElementsAre("checkpoint-3.safetensors", "checkpoint-3.manifest",
                                              "checkpoint-4.safetensors", "checkpoint-4.manifest"));
}

TEST_F(Checkpoints, NameTheTensorThatDoesNotFit) {
    save(3);
    State state = State::zeros();
    const auto error_with = [&](std::size_t index, const ddp::NamedTensor& replacement) {
        auto tensors = state.tensors();
        tensors[index] = replacement;
        try {
            folder().read(tensors);
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
        folder().read(fewer);
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("\"optimizer.rate\" that this program has not"));
        EXPECT_EQ(state, State::zeros());
    }
}

TEST_F(Checkpoints, ThatDoNotFitAreNotSkipped) {
    save(1);
    State state = State::zeros();
    auto more = state.tensors();
    more.push_back({"model.new", state.bias});
    folder().write({.epoch = 2}, more);
    EXPECT_THAT(error_of_reading(), HasSubstr("\"model.new\" that this program has not"));
}

TEST_F(Checkpoints, AreRefusedWhenEitherFileIsNoOrdinaryOne) {
    for (const fs::path& path : {file(), manifest()}) {
        save(1);
        const fs::path aside = dir_ / "aside";
        fs::rename(path, aside);
        fs::create_symlink(aside, path);
        EXPECT_THAT(error_of_reading(), HasSubstr("it is a symbolic link"));
        fs::remove(path);
        ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
        EXPECT_THAT(error_of_reading(), HasSubstr("not a regular file"));
        fs::remove(path);
        fs::create_directory(path);
        EXPECT_THAT(error_of_reading(), HasSubstr("not a regular file"));
        fs::remove(path);
        fs::rename(aside, path);
        EXPECT_EQ(error_of_reading(), "no error");
        fs::remove(file());
        fs::remove(manifest());
    }
}

TEST_F(Checkpoints, AreRefusedWhenTheyAreAnothersFiles) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
    save(1);
    for (const fs::path& path : {file(), manifest()}) {
        ASSERT_EQ(::chown(path.c_str(), 4321, 4321), 0);
        EXPECT_THAT(error_of_reading(), HasSubstr("it belongs to another user"));
        ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
    }
    EXPECT_EQ(error_of_reading(), "no error");
}

// Each time a manifest is opened, something happens first.
class BusyFiles : public ForwardedFiles {
public:
    explicit BusyFiles(std::function<void()> before) : before_(std::move(before)) {}
    int open(Path path) override {
        if (path.ends_with(".manifest") && before_) std::exchange(before_, nullptr)();
        return ForwardedFiles::open(path);
    }

private:
    std::function<void()> before_;
};

TEST_F(Checkpoints, AreFoundWhileASaverReplacesThem) {
    save(1);
    BusyFiles files([&] {
        State next;
        next.rate = 0.5F;
        folder(1).write({.epoch = 2}, next.tensors());
    });
    State loaded = State::zeros();
    const auto progress = CheckpointFolder{files, dir_, 2}.read(loaded.tensors());
    ASSERT_TRUE(progress);
    EXPECT_EQ(progress->epoch, 2);
    EXPECT_EQ(loaded.rate, 0.5F);
}

TEST_F(Checkpoints, AreNotCalledDamagedWhenTheyCouldNotBeRead) {
    save(1);
    class Lacking : public ForwardedFiles {
        int open(Path) override { return -EMFILE; }
    } files;
    State state = State::zeros();
    try {
        CheckpointFolder{files, dir_, 2}.read(state.tensors());
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("Too many open files"));
        EXPECT_THAT(error.what(), Not(HasSubstr("remove")));
    }
}

TEST_F(Checkpoints, StayWhenTheNextSaveFails) {
    auto writes = folder();
    State saved;
    writes.write({.epoch = 1}, saved.tensors());
    const auto before = names();
    fs::create_directories(file(2).string() + ".tmp");
    try {
        writes.write({.epoch = 2}, saved.tensors());
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("cannot create " + file(2).string() + ".tmp"));
    }
    fs::remove(file(2).string() + ".tmp");
    EXPECT_EQ(names(), before);
    EXPECT_EQ(error_of_reading(), "no error");
}

TEST_F(Checkpoints, SayWhyTheirFolderCannotBeMade) {
    State saved;
    put(dir_ / "file", "a file, not a folder");
    for (const char* path : {"file", "file/folder"}) {
        CheckpointFolder impossible{ddp::checkpoint::system_files(), dir_ / path, 2};
        try {
            impossible.write({.epoch = 1}, saved.tensors());
            FAIL() << "no error";
        } catch (const ddp::CheckpointError& error) {
            EXPECT_THAT(error.what(), HasSubstr("cannot create the folder"));
            EXPECT_THAT(error.what(), HasSubstr("Not a directory"));
        }
    }
}

TEST_F(Checkpoints, AreFreedOfLeftOversAtTheNextStart) {
    save(1);
    const auto before = names();
    const std::vector<fs::path> left_overs{file(2).string() + ".tmp", manifest(1).string() + ".tmp",
                                           file(7)};
    const auto leave = [&] {
        for (const fs::path& path : left_overs) put(path, std::string(10'000, 'x'));
        put(dir_ / "notes.txt", "mine");
        put(dir_ / "checkpoint-0012.safetensors", "another's: ours have no zeros in front");
    };
    leave();
    EXPECT_EQ(error_of_reading(), "no error");
    for (const fs::path& path : left_overs) EXPECT_FALSE(fs::exists(path)) << path;
    leave();
    save(2);
    for (const fs::path& path : left_overs) EXPECT_FALSE(fs::exists(path)) << path;
    EXPECT_TRUE(fs::exists(dir_ / "notes.txt"));
    EXPECT_TRUE(fs::exists(dir_ / "checkpoint-0012.safetensors"));
    EXPECT_TRUE(fs::exists(file(8))) << "a number was used twice";
}

TEST_F(Checkpoints, KeepTheirUnfinishedFilesWhileAnotherJobSaves) {
    auto writes = folder();
    State state;
    writes.write({.epoch = 1}, state.tensors());
    const fs::path in_the_making = file(2).string() + ".tmp";
    put(in_the_making, "half");
    EXPECT_EQ(error_of_reading(), "no error");
    EXPECT_TRUE(fs::exists(in_the_making));
}

// The lease ends before each call of a save in turn that changes a name in the folder.
TEST_F(Checkpoints, AreCommittedWhileTheLeaseHoldsAndElseTheOldOnesStay) {
    std::size_t refused = 0;
    for (int held = 0;; ++held) {
        fs::remove_all(dir_);
        save(1);
        save(2);
        const auto before = names();
        int asked = 0;
        const auto files = ddp::checkpoint::make_system_files([&] { return asked++ < held; });
        State next;
        next.weight[0] = 42;
        std::string error;
        try {
            CheckpointFolder{*files, dir_, 2}.write({.epoch = 3}, next.tensors());
        } catch (const ddp::CheckpointError& problem) {
            error = problem.what();
        }
        if (asked <= held) {
            EXPECT_EQ(error, "");
            break;
        }
        const bool committed = error.empty();
        refused += committed ? 0 : 1;
        if (!committed) {
            EXPECT_THAT(error, HasSubstr("this host has lost contact with its job"));
            EXPECT_THAT(names(), testing::IsSupersetOf(before)) << held;
        }
        State loaded;
        EXPECT_EQ(load(loaded), Progress{.epoch = committed ? 3 : 2}) << held;
        EXPECT_EQ(loaded, committed ? next : State{}) << held;
        save(4);
        EXPECT_EQ(names().size(), 4U) << held << ": something is left over";
        EXPECT_EQ(error_of_reading(), "no error");
    }
    EXPECT_EQ(refused, 5U) << "the folder, and each of two files made and renamed";
}

// The job may run elsewhere, and write the files that look left over here.
TEST_F(Checkpoints, KeepTheirUnfinishedFilesWhenTheLeaseHasEnded) {
    save(1);
    const std::vector<fs::path> in_the_making{file(2).string() + ".tmp", file(3)};
    for (const fs::path& path : in_the_making) put(path, "of the job elsewhere");
    const auto before = names();
    const auto files = ddp::checkpoint::make_system_files([] { return false; });
    State state;
    {
        CheckpointFolder late{*files, dir_, 2};
        EXPECT_EQ(late.read(state.tensors()), Progress{.epoch = 1});
        EXPECT_THROW(late.write({.epoch = 2}, state.tensors()), ddp::CheckpointError);
    }
    EXPECT_THAT(names(), testing::UnorderedElementsAreArray(before));
}

TEST_F(Checkpoints, AreSavedAgainWhenTheLeaseHasBeenMovedOn) {
    bool holds = true;
    const auto files = ddp::checkpoint::make_system_files([&] { return holds; });
    CheckpointFolder writes{*files, dir_, 2};
    State state;
    writes.write({.epoch = 1}, state.tensors());
    holds = false;
    EXPECT_THROW(writes.write({.epoch = 2}, state.tensors()), ddp::CheckpointError);
    holds = true;
    writes.write({.epoch = 3}, state.tensors());
    EXPECT_EQ(load(state), Progress{.epoch = 3});
}
