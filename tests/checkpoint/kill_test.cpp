// A process that saves is killed at any moment: what it had acknowledged is there, whole, and the
// next start leaves no unfinished file.
#include <ddp/error.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "support/seed.hpp"

namespace {

namespace fs = std::filesystem;
using ddp::checkpoint::CheckpointFolder;

constexpr std::size_t floats = 200'000;

// What the killed process had told, in memory that outlives it.
class Acknowledged {
public:
    Acknowledged()
        : memory_(::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
        if (memory_ != MAP_FAILED) new (memory_) std::atomic<int>{0};
    }
    Acknowledged(const Acknowledged&) = delete;
    Acknowledged& operator=(const Acknowledged&) = delete;
    ~Acknowledged() { ::munmap(memory_, sizeof(std::atomic<int>)); }
    std::atomic<int>& value() { return *static_cast<std::atomic<int>*>(memory_); }

private:
    void* memory_;
};

[[noreturn]] void save_for_ever(const fs::path& dir, std::atomic<int>& acknowledged) {
    std::vector<float> weight(floats);
    CheckpointFolder folder{ddp::checkpoint::system_files(), dir, 2};
    for (int save = acknowledged + 1;; ++save) {
        std::ranges::fill(weight, static_cast<float>(save));
        folder.write({.epoch = save}, {{"weight", weight}});
        acknowledged = save;
    }
}

// Starts a process that saves, kills it after `lifetime`, and looks at what is there.
void kill_one(const fs::path& dir, std::atomic<int>& acknowledged,
              std::chrono::microseconds lifetime) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        try {
            save_for_ever(dir, acknowledged);
        } catch (...) {
            ::_exit(1);
        }
    }
    std::this_thread::sleep_for(lifetime);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself";

    std::vector<float> weight(floats, -1.F);
    CheckpointFolder folder{ddp::checkpoint::system_files(), dir, 2};
    const auto found = folder.read({{"weight", weight}});
    if (!found) {
        EXPECT_EQ(acknowledged, 0);
    } else {
        EXPECT_GE(found->epoch, acknowledged);
        EXPECT_LE(found->epoch, acknowledged + 1);
        EXPECT_EQ(weight, std::vector<float>(floats, static_cast<float>(found->epoch)));
        acknowledged = found->epoch;
    }
    for (const auto& entry : fs::directory_iterator(dir)) {
        EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    }
}

void kill_many(int kills) {
    std::mt19937 random{ddp::store_test::random_seed()};
    std::string dir = (fs::temp_directory_path() / "ddp-kill-XXXXXX").string();
    ASSERT_NE(::mkdtemp(dir.data()), nullptr);
    Acknowledged acknowledged;
    std::uniform_int_distribution<int> lifetime{0, 40'000};
    for (int i = 0; i < kills && !testing::Test::HasFailure(); ++i) {
        kill_one(dir, acknowledged.value(), std::chrono::microseconds(lifetime(random)));
    }
    EXPECT_GT(acknowledged.value(), 0) << "killed before it could do anything";
    std::cout << kills << " kills, " << acknowledged.value() << " saves acknowledged or found\n";
    fs::remove_all(dir);
}

}  // namespace

TEST(KilledSaves, LeaveWhatWasAcknowledged) { kill_many(100); }
TEST(KilledSaves, SoakLeaveWhatWasAcknowledged) { kill_many(1000); }
