// Saves on a disk that loses power after every change, in every way that it may, and one on which
// each call fails in turn: what is found afterwards is the old checkpoint or the new one, whole.
#include "base/sanitizers.hpp"
#include "checkpoint/checkpoint_folder.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/simulated_disk.hpp"

namespace {

using ddp::Progress;
using ddp::checkpoint::CheckpointFolder;
using ddp::checkpoint_test::DiskImage;
using ddp::checkpoint_test::SimulatedDisk;

constexpr std::size_t floats = 4'000;  // 16 kB: 32 sectors, 4 pages

// Every element tells which save it is from.
struct Saved {
    explicit Saved(int save) : large(floats, static_cast<float>(save)), small(3, save) {}
    std::vector<ddp::NamedTensor> tensors() { return {{"large", large}, {"small", small}}; }
    friend bool operator==(const Saved&, const Saved&) = default;

    std::vector<float> large;
    std::vector<std::int64_t> small;
};

void save(CheckpointFolder& folder, int number) {
    Saved state{number};
    folder.write({.epoch = number, .samples = 0, .step = number}, state.tensors());
}

// The number of the save that is found; 0: none. Throws when it cannot be read, or is a mixture.
int found_on(SimulatedDisk& disk) {
    CheckpointFolder folder{disk, "run", 2};
    Saved state{-1};
    const auto progress = folder.read(state.tensors());
    if (!progress) return 0;
    if (state != Saved{progress->epoch} || progress->step != progress->epoch) {
        throw ddp::CheckpointError("a mixture of two");
    }
    return progress->epoch;
}

// Runs saves 1 to `last`, with a new process in between when `restarts`; loses power everywhere.
struct PowerLosses {
    std::size_t states = 0;
    std::size_t bad = 0;
    std::string first_problem;

    void check(const DiskImage& image, int acknowledged, int in_progress) {
        ++states;
        try {
            SimulatedDisk disk{image};
            const int found = found_on(disk);
            if (found != acknowledged && found != in_progress) {
                throw ddp::CheckpointError("found save " + std::to_string(found));
            }
            CheckpointFolder after{disk, "run", 2};
            save(after, 77);
            for (const std::string& name : disk.names()) {
                if (name.ends_with(".tmp")) throw ddp::CheckpointError(name + " is left");
            }
            if (found_on(disk) != 77) throw ddp::CheckpointError("the next save is not found");
        } catch (const std::exception& error) {
            if (bad++ == 0) {
                first_problem = "in save " + std::to_string(in_progress) + ", " +
                                std::to_string(acknowledged) + " acknowledged: " + error.what();
            }
        }
    }

    void run(SimulatedDisk& disk, int last, std::size_t keep_last, bool restarts) {
        int acknowledged = 0;
        int in_progress = 1;
        disk.on_change = [&] {
            disk.for_each_power_loss(
                [&](const DiskImage& image) { check(image, acknowledged, in_progress); });
        };
        std::optional<CheckpointFolder> folder{std::in_place, disk, restarts ? "run/" : "run",
                                               keep_last};
        for (; in_progress <= last; ++in_progress) {
            save(*folder, in_progress);
            acknowledged = in_progress;
            disk.on_change();
            if (restarts) folder.emplace(disk, "run", keep_last);
        }
        disk.on_change = {};
    }
};

struct Outcome {
    bool acknowledged;
    int found;
};

// Save 1, then save 2 with `fault`; then looks at what is there.
Outcome save_with(SimulatedDisk& disk, const std::function<int(std::string_view)>& fault) {
    CheckpointFolder folder{disk, "run", 2};
    save(folder, 1);
    disk.fault = fault;
    bool acknowledged = true;
    try {
        save(folder, 2);
    } catch (const ddp::CheckpointError&) {
        acknowledged = false;
    }
    disk.fault = {};
    const int found = found_on(disk);
    save(folder, 3);
    EXPECT_EQ(found_on(disk), 3);
    return {acknowledged, found};
}

}  // namespace

// Sanitizers slow each state down twentyfold.
#if defined(DDP_SANITIZES_THREADS) || defined(DDP_SANITIZES_ADDRESSES)
constexpr int saves = 3;
constexpr std::size_t states_wanted = 1'000;
#else
constexpr int saves = 12;
constexpr std::size_t states_wanted = 10'000;
#endif

TEST(PowerLoss, LeavesTheOldCheckpointOrTheNewOne) {
    std::size_t states = 0;
    for (const std::size_t keep_last : {std::size_t{1}, std::size_t{2}}) {
        for (const bool restarts : {false, true}) {
            SimulatedDisk disk;
            PowerLosses losses;
            losses.run(disk, saves, keep_last, restarts);
            EXPECT_EQ(losses.bad, 0U) << "keep " << keep_last << ": " << losses.first_problem;
            states += losses.states;
        }
    }
    std::cout << states << " states after a loss of power\n";
    EXPECT_GE(states, states_wanted);
}

TEST(PowerLoss, IsSeenToHarmADiskThatDoesNotSyncFiles) {
    SimulatedDisk disk;
    disk.syncs_files = false;
    PowerLosses losses;
    losses.run(disk, 2, 1, false);
    EXPECT_GT(losses.bad, 0U);
}

TEST(PowerLoss, IsSeenToHarmADiskThatDoesNotSyncFolders) {
    SimulatedDisk disk;
    disk.syncs_directories = false;
    PowerLosses losses;
    losses.run(disk, 2, 2, false);
    EXPECT_GT(losses.bad, 0U);
}

TEST(FailingDisk, NeverGivesAFalseSuccessNorHarmsTheOldCheckpoint) {
    for (const int error : {ENOSPC, EIO, EINTR, EACCES}) {
        std::size_t failures = 0;
        for (std::size_t nth = 0;; ++nth) {
            SimulatedDisk disk;
            std::size_t call = 0;
            std::string failed;
            const auto [acknowledged, found] = save_with(disk, [&](std::string_view name) {
                if (call++ != nth) return 0;
                failed = name;
                return error;
            });
            if (call <= nth) break;
            EXPECT_EQ(found, acknowledged ? 2 : 1) << failed << ", errno " << error;
            if (!acknowledged) ++failures;
            // Those after the commit are of no matter; a signal is no failure of most calls.
            const std::set<std::string> harmless{"remove", "list"};
            const bool retried = error == EINTR && (failed == "create" || failed == "write");
            EXPECT_EQ(acknowledged, retried || harmless.contains(failed))
                << failed << ", errno " << error;
            EXPECT_EQ(disk.open_files(), 0U) << failed;
        }
        EXPECT_GE(failures, error == EINTR ? 8U : 12U);
    }
}

TEST(FailingDisk, MakesTheSaveDurableWhenItIsAcknowledged) {
    SimulatedDisk disk;
    CheckpointFolder folder{disk, "run", 2};
    for (int number = 1; number < 4; ++number) {
        save(folder, number);
        SimulatedDisk after_power_loss{disk.durable()};
        EXPECT_EQ(found_on(after_power_loss), number);
    }
}

// The job that made it was killed before it could sync the folder above.
TEST(FailingDisk, MakesAFolderDurableThatWasThere) {
    SimulatedDisk disk;
    ASSERT_EQ(disk.make_directory("run"), 0);
    CheckpointFolder folder{disk, "run", 2};
    save(folder, 1);
    SimulatedDisk after_power_loss{disk.durable()};
    EXPECT_EQ(found_on(after_power_loss), 1);
}

TEST(FailingDisk, DoesNotRepeatAFailedSync) {
    for (const int nth : {1, 2}) {
        SimulatedDisk disk;
        int syncs = 0;
        std::vector<std::string> calls;
        CheckpointFolder folder{disk, "run", 2};
        save(folder, 1);
        disk.fault = [&](std::string_view name) {
            calls.emplace_back(name);
            return name == "sync" && ++syncs == nth ? EIO : 0;
        };
        EXPECT_THROW(save(folder, 2), ddp::CheckpointError);
        EXPECT_EQ(syncs, nth);
        EXPECT_EQ(std::ranges::count(calls, "rename"), nth - 1) << "what was not synced was used";
    }
}

TEST(FailingDisk, WritesOnAfterShortWritesAndReads) {
    SimulatedDisk disk;
    disk.largest_write = 1000;
    CheckpointFolder folder{disk, "run", 2};
    save(folder, 1);
    EXPECT_EQ(found_on(disk), 1);
}

TEST(FailingDisk, NeedNotBeginBeforeTheSync) {
    SimulatedDisk disk;
    int asked = 0;
    disk.fault = [&](std::string_view name) {
        return name == "start_writeback" && ++asked > 0 ? EINVAL : 0;
    };
    std::vector<float> values(5'000'000, 7.F);
    CheckpointFolder folder{disk, "run", 2};
    folder.write({.epoch = 1}, {{"values", values}});
    EXPECT_EQ(asked, 2) << "of 20 MB";
    std::ranges::fill(values, 0.F);
    SimulatedDisk after_power_loss{disk.durable()};
    EXPECT_TRUE(CheckpointFolder(after_power_loss, "run", 2).read({{"values", values}}));
    EXPECT_EQ(values.back(), 7.F);
}

TEST(FailingDisk, SaysWhatFailedAndWhy) {
    SimulatedDisk disk;
    CheckpointFolder folder{disk, "run", 2};
    disk.fault = [](std::string_view name) { return name == "write" ? ENOSPC : 0; };
    try {
        save(folder, 1);
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_STREQ(error.what(),
                     "checkpoint: cannot write run/checkpoint-1.safetensors.tmp: No space left on "
                     "device");
    }
    EXPECT_THAT(disk.names(), testing::IsEmpty());
}

TEST(FailingDisk, IsNotAcknowledgedWhenItGivesTheFilesToAnotherUser) {
    SimulatedDisk disk;
    CheckpointFolder folder{disk, "run", 2};
    save(folder, 1);
    disk.maps_owners = true;
    try {
        save(folder, 2);
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("run/checkpoint-2.safetensors.tmp belongs to "
                                                     "another user"));
        EXPECT_THAT(error.what(), testing::HasSubstr("this file system maps owners"));
    }
    EXPECT_THAT(disk.names(), testing::SizeIs(2)) << "the first one alone";
}

// What went wrong says nothing about locks: another job may hold this one.
TEST(FailingDisk, IsNotWrittenWhenLockingItFails) {
    for (const int error : {EMFILE, ENFILE, EACCES, EIO}) {
        SimulatedDisk disk;
        CheckpointFolder folder{disk, "run", 2};
        disk.fault = [&](std::string_view name) { return name == "lock_directory" ? error : 0; };
        try {
            save(folder, 1);
            ADD_FAILURE() << "no error for errno " << error;
        } catch (const ddp::CheckpointError& failure) {
            EXPECT_EQ(failure.what(), "checkpoint: cannot lock the folder run: " +
                                          ddp::checkpoint::errno_text(error));
        }
        EXPECT_THAT(disk.names(), testing::IsEmpty());
        disk.fault = {};
        save(folder, 1);
        EXPECT_EQ(found_on(disk), 1);
    }
}

TEST(FailingDisk, IsWrittenOnTrustWhenItHasNoLocks) {
    for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS}) {
        SimulatedDisk disk;
        disk.fault = [&](std::string_view name) { return name == "lock_directory" ? error : 0; };
        {
            CheckpointFolder folder{disk, "run", 2};
            save(folder, 1);
            save(folder, 2);
            EXPECT_EQ(found_on(disk), 2) << "errno " << error;
        }
        EXPECT_EQ(disk.open_files(), 0U);
    }
}
