// Two jobs that were started by hand with the same MASTER_PORT, their ranks in any order: the one
// whose rank 0 has the port runs, and each rank of the other ends with an error that names both.
#include "base/deadline.hpp"
#include "base/net/socket.hpp"
#include "base/process/process_tree.hpp"
#include "launcher/launch_fixture.hpp"
#include "security/stranger.hpp"
#include "support/seed.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <sstream>

namespace ddp::security_test {
namespace {

using launcher::testing::TemporaryFolder;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int first_slurm_job = 4711;

enum class Naming { unnamed, run_id, slurm_step, world_size };
constexpr std::array namings{Naming::unnamed, Naming::run_id, Naming::slurm_step,
                             Naming::world_size};

std::string text_of(const std::string& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// A shell of its own session, as another terminal's, that starts the ranks of one job.
class Shell {
public:
    explicit Shell(const std::string& folder) : folder_(folder) {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
        const base::UniqueFd input(ends[0]);
        commands_.reset(ends[1]);
        pid_ = ::fork();
        if (pid_ != 0) return;
        ::setsid();
        ::dup2(input.get(), STDIN_FILENO);
        ::execl("/bin/sh", "sh", static_cast<char*>(nullptr));
        ::_exit(95);
    }
    ~Shell() {
        if (pid_ <= 0) return;
        ::kill(-pid_, SIGKILL);
        while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    Shell(const Shell&) = delete;
    Shell& operator=(const Shell&) = delete;

    // In the background; what it writes, its pid and its exit code go to files of that name.
    void start(const std::string& name, const std::string& command) {
        const std::string file = folder_ + "/" + name;
        type(command + " >" + file + ".out 2>" + file + ".err & p" + name + "=$!; echo $! >" +
             file + ".pid");
        names_.push_back(name);
    }
    // Until all of them have ended; their exit codes by name.
    std::map<std::string, int> wait() {
        for (const std::string& name : names_) {
            const std::string file = folder_ + "/" + name;
            type("wait $p" + name + "; echo $? >" + file + ".code");
        }
        commands_.reset();
        const auto deadline = base::Deadline::after(seconds{45});
        while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
            if (deadline.passed()) ::kill(-pid_, SIGKILL);
            ::poll(nullptr, 0, 1);
        }
        pid_ = -1;
        std::map<std::string, int> codes;
        for (const std::string& name : names_) {
            const std::string code = text_of(folder_ + "/" + name + ".code");
            codes[name] = code.empty() ? -1 : std::stoi(code);  // -1: it did not end
        }
        return codes;
    }

private:
    void type(const std::string& line) const {
        const std::string text = line + "\n";
        EXPECT_EQ(::write(commands_.get(), text.data(), text.size()),
                  static_cast<ssize_t>(text.size()));
    }

    std::string folder_;
    base::UniqueFd commands_;
    pid_t pid_ = -1;
    std::vector<std::string> names_;
};

struct Rank {
    int job;
    int rank;
    std::string name() const { return (job == 0 ? "A" : "B") + std::to_string(rank); }
};

int ranks_of(int job, Naming naming) { return naming == Naming::world_size && job == 1 ? 3 : 2; }

std::string job_name(int job) { return job == 0 ? "morning" : "evening"; }

std::string variables(const Rank& one, Naming naming) {
    const std::string rank = std::to_string(one.rank);
    const std::string ranks = std::to_string(ranks_of(one.job, naming));
    if (naming == Naming::slurm_step) {
        return "SLURM_JOB_ID=" + std::to_string(first_slurm_job + one.job) +
               " SLURM_STEP_ID=0 SLURM_PROCID=" + rank + " SLURM_LOCALID=" + rank +
               " SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=" + ranks +
               " SLURM_STEP_TASKS_PER_NODE=" + ranks;
    }
    const std::string name = naming == Naming::run_id ? job_name(one.job) : "none";
    return "RANK=" + rank + " LOCAL_RANK=" + rank + " WORLD_SIZE=" + ranks +
           " LOCAL_WORLD_SIZE=" + ranks + " TORCHELASTIC_RUN_ID=" + name;
}

// A port for a moment's test, outside of those that the kernel gives to others.
std::uint16_t free_port(std::mt19937& random) {
    for (;;) {
        const auto port = static_cast<std::uint16_t>(20000 + random() % 10000);
        try {
            base::listen_tcp("127.0.0.1", port);
            return port;
        } catch (const SystemError&) {
            continue;
        }
    }
}

class TwoJobs : public ::testing::Test {
protected:
    void interleave_often(int times) {
        std::mt19937 random(store_test::random_seed());
        for (int i = 0; i < times && !HasFailure(); ++i) {
            interleave(namings[static_cast<std::size_t>(i) % namings.size()], random);
        }
    }

    void interleave(Naming naming, std::mt19937& random) {
        const TemporaryFolder folder;
        std::vector<Rank> order;
        for (const int job : {0, 1}) {
            for (int rank = 0; rank < ranks_of(job, naming); ++rank) order.push_back({job, rank});
        }
        std::shuffle(order.begin(), order.end(), random);
        const std::uint16_t port = free_port(random);
        std::string story = "naming " + std::to_string(static_cast<int>(naming)) + ", port " +
                            std::to_string(port) + ":";
        Shell shell_a(folder.path());
        Shell shell_b(folder.path());
        for (const Rank& one : order) {
            const auto pause_us = random() % 4 == 0 ? random() % 100'000 : random() % 3'000;
            const timespec pause{0, static_cast<long>(pause_us) * 1000};
            ::nanosleep(&pause, nullptr);
            story += " (" + std::to_string(pause_us) + " us) " + one.name();
            (one.job == 0 ? shell_a : shell_b)
                .start(one.name(), command(one, naming, port, folder.path()));
        }
        SCOPED_TRACE(story);
        wait_for_losers(order, folder.path());
        std::ofstream(folder.path() + "/end");
        std::map<std::string, int> codes = shell_a.wait();
        codes.merge(shell_b.wait());
        judge(order, naming, port, folder.path(), codes);
    }

    static std::string command(const Rank& one, Naming naming, std::uint16_t port,
                               const std::string& folder) {
        return variables(one, naming) +
               " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port) + " " +
               DDP_SECURITY_WORKER + " tagged " + std::to_string(one.job + 1) + " " + folder;
    }

    // Until one whole job has ended, while the other one runs. The test goes on when that does not
    // come: the judgement says what is wrong.
    static void wait_for_losers(const std::vector<Rank>& order, const std::string& folder) {
        const auto deadline = base::Deadline::after(seconds{20});
        while (!deadline.passed()) {
            for (const int job : {0, 1}) {
                if (std::all_of(order.begin(), order.end(), [&](const Rank& one) {
                        return one.job != job || has_ended(folder + "/" + one.name());
                    })) {
                    return;
                }
            }
            ::poll(nullptr, 0, 2);
        }
    }

    // A zombie has: its shell looks at it later.
    static bool has_ended(const std::string& file) {
        const std::string pid = text_of(file + ".pid");
        if (pid.empty() || pid.back() != '\n') return false;
        // A stream would throw where the process goes in the middle of it.
        const std::string state =
            base::read_small_file("/proc/" + std::to_string(std::stoi(pid)) + "/stat");
        const std::size_t after_name = state.rfind(')');
        return after_name == state.npos || state.substr(after_name, 3) == ") Z";
    }

    static void judge(const std::vector<Rank>& order, Naming naming, std::uint16_t port,
                      const std::string& folder, const std::map<std::string, int>& codes) {
        const int winner = codes.at("A0") == 0 ? 0 : 1;
        for (const Rank& one : order) {
            const std::string file = folder + "/" + one.name();
            const std::string said = text_of(file + ".err");
            const int code = codes.at(one.name());
            SCOPED_TRACE(one.name() + " ended with " + std::to_string(code) + ": " + said);
            EXPECT_NE(code, -1) << "it did not end";
            EXPECT_NE(code, 71) << "it was in a world with ranks of the other job";
            if (one.job == winner) {
                EXPECT_EQ(code, 0);
                EXPECT_THAT(text_of(file + ".out"),
                            HasSubstr("joined rank " + std::to_string(one.rank) + " of " +
                                      std::to_string(ranks_of(one.job, naming))));
            } else {
                EXPECT_NE(code, 0);
                EXPECT_THAT(said, HasSubstr(std::to_string(port)));
                expect_both_named(naming, winner, said);
                if (naming != Naming::unnamed) continue;
                for (const std::string& name : {one.name(), Rank{winner, 0}.name()}) {
                    EXPECT_THAT(said, HasSubstr("pid " + pid_of(folder + "/" + name)));
                }
            }
        }
    }

    static std::string pid_of(const std::string& file) {
        return std::to_string(std::stoi(text_of(file + ".pid")));
    }

    static void expect_both_named(Naming naming, int winner, const std::string& said) {
        const int loser = 1 - winner;
        switch (naming) {
            case Naming::run_id:
                EXPECT_THAT(said, HasSubstr(job_name(winner)));
                EXPECT_THAT(said, HasSubstr(job_name(loser)));
                break;
            case Naming::slurm_step:
                EXPECT_THAT(said, HasSubstr(std::to_string(first_slurm_job + winner)));
                EXPECT_THAT(said, HasSubstr(std::to_string(first_slurm_job + loser)));
                break;
            case Naming::world_size:
                EXPECT_THAT(said, HasSubstr(std::to_string(ranks_of(winner, naming))));
                EXPECT_THAT(said, HasSubstr(std::to_string(ranks_of(loser, naming))));
                break;
            case Naming::unnamed:
                EXPECT_THAT(said, HasSubstr("MASTER_PORT"));
                break;
        }
    }
};

TEST_F(TwoJobs, OnOnePortNeverMix) { interleave_often(8); }

TEST_F(TwoJobs, SoakOnOnePortNeverMixInAHundredInterleavings) { interleave_often(100); }

}  // namespace
}  // namespace ddp::security_test
