// A rank is killed at a random moment inside any collective, on every path: the others throw
// PeerError that names it, and soon; nothing is left in /dev/shm, which none of this needs.
#include "process_group/worlds.hpp"
#include "support/seed_for_ranks.hpp"

#include "base/unique_fd.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;

constexpr int ranks = 4;
constexpr int victim = 2;
constexpr std::size_t part = 20'000;

// Calls one collective; both tensors hold `ranks` parts.
struct Named {
    const char* name;
    void (*call)(ProcessGroup&, std::span<float> from, std::span<float> to);
};
constexpr Named collectives[] = {
    {"all_reduce", [](ProcessGroup& g, std::span<float> from,
                      std::span<float> to) { g.all_reduce(from, to, ReduceOp::sum).wait(); }},
    {"reduce", [](ProcessGroup& g, std::span<float> from,
                  std::span<float> to) { g.reduce(from, to, Root{1}).wait(); }},
    {"broadcast",
     [](ProcessGroup& g, std::span<float> from, std::span<float>) { g.broadcast(from).wait(); }},
    {"all_gather", [](ProcessGroup& g, std::span<float> from,
                      std::span<float> to) { g.all_gather(from.subspan(0, part), to).wait(); }},
    {"gather", [](ProcessGroup& g, std::span<float> from,
                  std::span<float> to) { g.gather(from.subspan(0, part), to, Root{3}).wait(); }},
    {"scatter",
     [](ProcessGroup& g, std::span<float> from, std::span<float> to) {
         g.scatter(from, to.subspan(0, part), Root{victim}).wait();
     }},
    {"reduce_scatter",
     [](ProcessGroup& g, std::span<float> from, std::span<float> to) {
         g.reduce_scatter(from, to.subspan(0, part)).wait();
     }},
    {"all_to_all", [](ProcessGroup& g, std::span<float> from,
                      std::span<float> to) { g.all_to_all(from, to).wait(); }},
    {"barrier", [](ProcessGroup& g, std::span<float>, std::span<float>) { g.barrier().wait(); }},
    {"send and recv",
     [](ProcessGroup& g, std::span<float> from, std::span<float> to) {
         const P2POp ops[] = {{P2POp::send, from, Peer{(g.rank() + 1) % ranks}},
                              {P2POp::recv, to, Peer{(g.rank() + ranks - 1) % ranks}}};
         g.batch_send_recv(ops).wait();
     }},
};

std::int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What the ranks of one run tell the test: when the victim ended, and when each survivor threw.
struct Times {
    std::atomic<std::int64_t> killed;
    std::atomic<std::int64_t> threw[ranks];
};

// In a file, of which the test and its ranks each have a mapping.
class SharedTimes {
public:
    SharedTimes() {
        base::UniqueFd file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
        void* const memory =
            ::mmap(nullptr, sizeof(Times), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
        if (memory != MAP_FAILED) times_ = new (memory) Times{};  // in ranks before any body
    }
    ~SharedTimes() {
        if (times_ != nullptr) ::munmap(times_, sizeof(Times));
        ::unlink(path_.c_str());
    }
    SharedTimes(const SharedTimes&) = delete;
    SharedTimes& operator=(const SharedTimes&) = delete;
    Times* get() const { return times_; }

private:
    const std::string path_ = made_once([] {
        std::string path = ::testing::TempDir() + "ddp-kill-XXXXXX";
        const base::UniqueFd file(::mkstemp(path.data()));
        EXPECT_EQ(::ftruncate(file.get(), sizeof(Times)), 0);
        return path;
    });
    Times* times_ = nullptr;
};

void loop_until_it_throws(ProcessGroup& group, const Named& collective, bool shared,
                          std::chrono::microseconds delay, Times& times) {
    std::vector<float> own(2 * ranks * part);
    const Tensor tensor =
        group.allocate(Shape{static_cast<std::int64_t>(own.size())}, DType::float32);
    const std::span<float> memory = shared ? tensor.as<float>() : std::span<float>(own);
    group.barrier().wait();
    std::jthread killer;
    if (group.rank() == victim) {
        killer = std::jthread([&times, delay] {
            std::this_thread::sleep_for(delay);
            times.killed = now_ns();
            ::raise(SIGKILL);
        });
    }
    try {
        for (;;) {
            collective.call(group, memory.subspan(0, ranks * part), memory.subspan(ranks * part));
        }
    } catch (const PeerError& error) {
        times.threw[group.rank()] = now_ns();
        EXPECT_EQ(error.rank(), victim) << error.what();
    }
}

std::set<std::string> names_in_dev_shm() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
        names.insert(entry.path().filename());
    }
    return names;
}

struct Path {
    const char* name;
    bool shared;  // the memory
    const char* tuning;
};
class Kill : public ::testing::TestWithParam<Path> {
protected:
    void SetUp() override { ::setenv("DDP_SHM_TUNING", GetParam().tuning, 1); }
    void TearDown() override { ::unsetenv("DDP_SHM_TUNING"); }
};
INSTANTIATE_TEST_SUITE_P(Paths, Kill,
                         ::testing::Values(Path{"Shared", true, ""},
                                           Path{"Staged", false, "direct_bytes_max=0"},
                                           Path{"Read", false, read_directly}),
                         [](const auto& path) { return std::string(path.param.name); });

TEST_P(Kill, EndsEveryCollectiveSoonOnTheOthers) {
    std::mt19937 random(seed_for_ranks());
    const SharedTimes shared;
    Times* const times = shared.get();
    ASSERT_NE(times, nullptr);
    const auto before = names_in_dev_shm();
    std::int64_t longest = 0;
    for (const Named& collective : collectives) {
        for (int round = 0; round < 3; ++round) {
            SCOPED_TRACE(collective.name);
            const std::chrono::microseconds delay(random() % 4'000);
            run_ranks(ranks,
                      [&](ProcessGroup& group) {
                          loop_until_it_throws(group, collective, GetParam().shared, delay, *times);
                      },
                      {.may_die = {victim}});
            for (int rank = 0; rank < ranks; ++rank) {
                if (rank == victim) continue;
                const std::int64_t took = times->threw[rank] - times->killed;
                EXPECT_LT(took, std::chrono::nanoseconds(1s).count()) << "rank " << rank;
                longest = std::max(longest, took);
            }
        }
    }
    std::cout << "from the kill to the error at most " << longest / 1'000 << " us\n";
    for (const std::string& name : names_in_dev_shm()) {
        EXPECT_TRUE(before.contains(name) || name.find("ddp") == std::string::npos) << name;
    }
}

// In a mount namespace of this process alone.
bool make_dev_shm_tiny() {
    return ::unshare(CLONE_NEWNS) == 0 &&
           ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tiny", "/dev/shm", "tmpfs", 0, "size=64k") == 0;
}

bool can_make_dev_shm_tiny() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(make_dev_shm_tiny() ? 0 : 1);
    int status = 0;
    return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(Shm, NeedsNothingOfDevShm) {
    if (!can_make_dev_shm_tiny()) GTEST_SKIP() << "may not make a mount namespace: needs root";
    const auto body = [](RankReporter& reporter, const std::function<ProcessGroup()>& join) {
        struct statfs status {};
        if (!make_dev_shm_tiny() || ::statfs("/dev/shm", &status) != 0 ||
            status.f_blocks * static_cast<std::uint64_t>(status.f_bsize) > 65'536) {
            reporter.failure("/dev/shm is as it was");
        }
        ProcessGroup group = join();
        const Tensor tensor = group.allocate(Shape{10'000'000}, DType::float32);
        std::vector<float> own(10'000'000);
        for (const std::span<float> values : {tensor.as<float>(), std::span<float>(own)}) {
            std::fill(values.begin(), values.end(), 1.0F);
            group.all_reduce(values).wait();
            if (values.front() + values.back() != 4.0F) reporter.failure("a wrong sum");
        }
    };
    run_joining_ranks(2, body);
}

}  // namespace
