// CheckpointManager on several ranks: all get rank 0's state, and all throw when rank 0 cannot. The
// file itself is tested in checkpoint_file_test.cpp.
#include <ddp/checkpoint.hpp>
#include <ddp/error.hpp>
#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/on_rank_0.hpp"
#include "contract/control_page.hpp"

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ddp::testing::run_ranks;
using testing::HasSubstr;

struct Net {
    explicit Net(float first) : values{first, first + 1, first + 2} {}
    std::span<ddp::Parameter> parameters() { return list; }

    std::vector<float> values;
    std::vector<float> grads = std::vector<float>(3);
    std::vector<ddp::Parameter> list{{"w", values, grads}};
};

struct Optimizer {
    explicit Optimizer(double value) : momentum{value, -value} {}
    std::vector<ddp::NamedTensor> state_dict() {
        return {{"momentum.w", momentum}, {"nothing", empty}};
    }

    std::vector<double> momentum;
    std::vector<std::int64_t> empty;
};

class CheckpointManager : public testing::Test {
protected:
    void SetUp() override {
        dir_ = ddp::testing::made_once([] {
            std::string name = (fs::temp_directory_path() / "ddp-manager-XXXXXX").string();
            EXPECT_NE(::mkdtemp(name.data()), nullptr);
            return name;
        });
    }
    void TearDown() override { fs::remove_all(dir_); }

    // Only rank 0's folder may matter: the others have one that is never there.
    fs::path dir_of(const ddp::ProcessGroup& group) const {
        return group.rank() == 0 ? dir_ / "run" : dir_ / "of-no-use";
    }

    fs::path dir_;
};

// Another job that saves into the folder, as far as a save can see. Until it is over, rank 0's save
// waits.
class OtherJob {
public:
    // Lasts as long as `work`.
    OtherJob(const fs::path& dir, const std::function<void()>& work) {
        fs::create_directories(dir);
        const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        EXPECT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
        end_ = std::thread([fd, work] {
            work();
            ::close(fd);
        });
    }
    OtherJob(const OtherJob&) = delete;
    OtherJob& operator=(const OtherJob&) = delete;
    OtherJob(const fs::path& dir, std::chrono::milliseconds time)
        : OtherJob(dir, [time] { std::this_thread::sleep_for(time); }) {}
    ~OtherJob() { end_.join(); }

private:
    std::thread end_;
};

// Another rank makes it; not for longer than a save waits for its folder.
void wait_for_file(const fs::path& file) {
    const auto end = std::chrono::steady_clock::now() + 4s;
    while (!fs::exists(file) && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(5ms);
    }
}

bool comes_to_have(const fs::path& file, const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + 4s;
    while (std::chrono::steady_clock::now() < end) {
        std::ifstream in{file};
        const std::string now{std::istreambuf_iterator<char>(in), {}};
        if (now.find(text) != std::string::npos) return true;
        std::this_thread::sleep_for(5ms);
    }
    return false;
}

template <class Call>
std::string checkpoint_error_of(const Call& call) {
    try {
        call();
    } catch (const ddp::CheckpointError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_F(CheckpointManager, GivesAllRanksWhatRank0Saved) {
    run_ranks(3, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir_of(group), group};
        const auto mine = static_cast<float>(group.rank());
        Net net{100 * mine};
        Optimizer optimizer{mine + 7};
        EXPECT_EQ(manager.load_latest(net, optimizer), 0);
        EXPECT_EQ(net.values[0], 100 * mine);
        manager.save(4, net, optimizer);

        Net loaded{-1};
        Optimizer momentum{-1};
        EXPECT_EQ(manager.load_latest(loaded, momentum), 4);
        EXPECT_THAT(loaded.values, testing::ElementsAre(0, 1, 2));
        EXPECT_THAT(momentum.momentum, testing::ElementsAre(7, -7));
    });
    EXPECT_TRUE(fs::exists(dir_ / "run/checkpoint-1.safetensors"));
    EXPECT_FALSE(fs::exists(dir_ / "of-no-use"));
}

TEST_F(CheckpointManager, NamesTensorsAfterModelAndOptimizer) {
    run_ranks(1, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir_of(group), group};
        Net net{0};
        Optimizer optimizer{0};
        manager.save(1, net, optimizer);
    });
    std::ifstream in{dir_ / "run/checkpoint-1.safetensors", std::ios::binary};
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    EXPECT_THAT(bytes, HasSubstr(R"("model.w":)"));
    EXPECT_THAT(bytes, HasSubstr(R"("optimizer.momentum.w":)"));
}

TEST_F(CheckpointManager, ThrowsOnEveryRankWhenRank0CannotSave) {
    std::ofstream{dir_ / "run"} << "a file where the folder should be";
    run_ranks(3, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir_of(group), group};
        Net net{0};
        Optimizer optimizer{0};
        EXPECT_THAT(checkpoint_error_of([&] { manager.save(1, net, optimizer); }),
                    HasSubstr("cannot create the folder " + (dir_ / "run").string()));
        EXPECT_EQ(group.all_reduce(1), 3);  // the group goes on
    });
}

TEST_F(CheckpointManager, ThrowsOnEveryRankAndChangesNothingWhenTheFileIsDamaged) {
    fs::create_directory(dir_ / "run");
    std::ofstream{dir_ / "run/checkpoint-1.safetensors"} << "not a checkpoint";
    std::ofstream{dir_ / "run/checkpoint-1.manifest"} << "not a manifest";
    run_ranks(3, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir_of(group), group};
        Net net{5};
        Optimizer optimizer{5};
        EXPECT_THAT(
            checkpoint_error_of([&] { manager.load_latest(net, optimizer); }),
            HasSubstr((dir_ / "run/checkpoint-1.safetensors").string() + " cannot be used"));
        EXPECT_THAT(net.values, testing::ElementsAre(5, 6, 7));
        EXPECT_THAT(optimizer.momentum, testing::ElementsAre(5, -5));
    });
}

TEST_F(CheckpointManager, DoesNothingWithoutAFolder) {
    run_ranks(2, [](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{"", group};
        Net net{3};
        Optimizer optimizer{3};
        manager.save(9, net, optimizer);
        EXPECT_EQ(manager.load_latest(net, optimizer), 0);
        EXPECT_EQ(net.values[0], 3);
        if (group.rank() == 0) manager.save(9, net, optimizer);  // the ranks agree only once
        group.barrier().wait();
    });
}

TEST_F(CheckpointManager, RefusesANegativeEpoch) {
    run_ranks(1, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir_of(group), group};
        Net net{0};
        Optimizer optimizer{0};
        EXPECT_THROW(manager.save(-1, net, optimizer), ddp::UsageError);
        EXPECT_THROW(manager.save_async({.epoch = -1}, net, optimizer), ddp::UsageError);
    });
}

TEST_F(CheckpointManager, ResumesInTheMiddleOfAnEpoch) {
    run_ranks(2, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir_of(group), group};
        Net net{0};
        Optimizer optimizer{0};
        EXPECT_EQ(manager.resume(net, optimizer), ddp::Progress{});
        ddp::Progress progress{.epoch = 2};
        progress.finish_step(64);
        progress.finish_step(64);
        manager.save(progress, net, optimizer);
        const ddp::Progress found = manager.resume(net, optimizer);
        EXPECT_EQ(found, (ddp::Progress{.epoch = 2, .samples = 128, .step = 2}));
        EXPECT_THROW(manager.load_latest(net, optimizer), ddp::UsageError);
    });
}

TEST_F(CheckpointManager, SavesWhatWasThereWhenItWasAskedToWhileTheTrainingGoesOn) {
    run_ranks(2, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir_of(group), group};
        Net net{0};
        Optimizer optimizer{0};
        for (int step = 1; step <= 5; ++step) {
            net.values[0] = static_cast<float>(step);
            manager.save_async({.epoch = 0, .samples = 8, .step = step}, net, optimizer);
            net.values[0] = -1;  // the training goes on
        }
        manager.wait();
        EXPECT_EQ(manager.resume(net, optimizer).step, 5);
        EXPECT_EQ(net.values[0], 5);
    });
}

TEST_F(CheckpointManager, ThrowsAtTheNextCallWhatWentWrongInTheBackground) {
    run_ranks(2, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir_of(group), group};
        Net net{0};
        Optimizer optimizer{0};
        manager.save(1, net, optimizer);
        if (group.rank() == 0) fs::create_directory(dir_ / "run/checkpoint-2.safetensors.tmp");
        manager.save_async({.epoch = 2}, net, optimizer);
        EXPECT_THAT(checkpoint_error_of([&] { manager.wait(); }), HasSubstr("File exists"));
        manager.wait();  // said once
        manager.save_async({.epoch = 3}, net, optimizer);
        EXPECT_EQ(manager.load_latest(net, optimizer), 3);
    });
}

TEST_F(CheckpointManager, SavesNothingWhereItThrowsWhatWentWrongInTheBackground) {
    run_ranks(2, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir_of(group), group};
        Net net{0};
        Optimizer optimizer{0};
        manager.save(1, net, optimizer);
        if (group.rank() == 0) fs::create_directory(dir_ / "run/checkpoint-2.safetensors.tmp");
        manager.save_async({.epoch = 2}, net, optimizer);
        EXPECT_THAT(checkpoint_error_of([&] { manager.save(3, net, optimizer); }),
                    HasSubstr("File exists"));
        EXPECT_EQ(manager.load_latest(net, optimizer), 1);
        manager.save(4, net, optimizer);  // said once
        EXPECT_EQ(manager.load_latest(net, optimizer), 4);
    });
}

TEST_F(CheckpointManager, WaitsForTheBackgroundWhenItEnds) {
    run_ranks(2, [&](ddp::ProcessGroup& group) {
        Net net{0};
        Optimizer optimizer{0};
        {
            ddp::CheckpointManager manager{dir_of(group), group};
            manager.save_async({.epoch = 1}, net, optimizer);
        }
        ddp::CheckpointManager manager{dir_of(group), group};
        EXPECT_EQ(manager.load_latest(net, optimizer), 1);
    });
}

TEST_F(CheckpointManager, RefusesToKeepNone) {
    run_ranks(1, [&](ddp::ProcessGroup& group) {
        EXPECT_THROW((ddp::CheckpointManager{dir_of(group), group, {.keep_last = 0}}),
                     ddp::UsageError);
    });
}

TEST_F(CheckpointManager, LetsTheOthersWaitForLongerThanTheGroupsTimeout) {
    constexpr auto timeout = 1500ms;
    run_ranks(3,
              [&](ddp::ProcessGroup& group) {
                  ASSERT_EQ(group.timeout(), timeout);
                  std::optional<OtherJob> other;
                  if (group.rank() == 0) other.emplace(dir_ / "run", timeout + timeout);
                  ddp::CheckpointManager manager{dir_of(group), group};
                  Net net{0};
                  Optimizer optimizer{0};
                  const auto start = std::chrono::steady_clock::now();
                  manager.save(1, net, optimizer);
                  EXPECT_GT(std::chrono::steady_clock::now() - start, timeout);
                  EXPECT_EQ(manager.load_latest(net, optimizer), 1);
              },
              {.init = {.timeout = timeout}});
}

TEST_F(CheckpointManager, ThrowsOnEveryRankWhenRank0TakesTooLong) {
    run_ranks(3, [&](ddp::ProcessGroup& group) {
        std::optional<OtherJob> other;
        if (group.rank() == 0) other.emplace(dir_ / "run", 600ms);
        ddp::CheckpointManager manager{dir_of(group), group, {.timeout = 100ms}};
        Net net{0};
        Optimizer optimizer{0};
        EXPECT_THAT(checkpoint_error_of([&] { manager.save(1, net, optimizer); }),
                    HasSubstr("rank 0 is still at it after 100 ms"));
        EXPECT_EQ(group.all_reduce(1), 3);  // the group goes on
    });
}

TEST_F(CheckpointManager, ThrowsWhatWentWrongInTheBackgroundAlsoAfterACallThatTookTooLong) {
    const fs::path over = dir_ / "over";
    run_ranks(2, [&](ddp::ProcessGroup& group) {
        std::optional<OtherJob> other;
        if (group.rank() == 0) {
            other.emplace(dir_ / "run", [&] {
                wait_for_file(over);
                fs::remove_all(dir_ / "run");  // the save fails, but only now
            });
        }
        ddp::CheckpointManager manager{dir_of(group), group, {.timeout = 1s}};
        Net net{0};
        Optimizer optimizer{0};
        manager.save_async({.epoch = 1}, net, optimizer);
        EXPECT_THAT(checkpoint_error_of([&] { manager.wait(); }), HasSubstr("still at it"));
        if (group.rank() == 1) std::ofstream{over} << "rank 1 has heard it";
        EXPECT_THAT(checkpoint_error_of([&] { manager.wait(); }),
                    HasSubstr("No such file or directory"));
        manager.wait();  // said once
    });
}

TEST_F(CheckpointManager, ChangesNothingAfterAResumeThatTookTooLong) {
    const fs::path over = dir_ / "over";
    run_ranks(2, [&](ddp::ProcessGroup& group) {
        Net net{3};
        Optimizer optimizer{3};
        {
            ddp::CheckpointManager manager{dir_of(group), group};
            manager.save(1, net, optimizer);
        }
        std::optional<OtherJob> other;
        if (group.rank() == 0) other.emplace(dir_ / "run", [&] { wait_for_file(over); });
        ddp::CheckpointManager manager{dir_of(group), group, {.timeout = 1s}};
        manager.save_async({.epoch = 2}, net, optimizer);
        net.values[0] = -1;
        EXPECT_THAT(checkpoint_error_of([&] { manager.resume(net, optimizer); }),
                    HasSubstr("still at it"));
        if (group.rank() == 1) std::ofstream{over} << "rank 1 has heard it";
        EXPECT_EQ(net.values[0], -1);  // rank 0 comes here when its work is over
        EXPECT_EQ(manager.resume(net, optimizer).epoch, 2);
        EXPECT_EQ(net.values[0], 3);
    });
}

// Before its next report, which is not due for 5 s.
TEST_F(CheckpointManager, HearsAtOnceThatARankIsGoneWhileRank0Works) {
    const fs::path log = dir_ / "log";
    run_ranks(2,
              [&](ddp::ProcessGroup& group) {
                  if (group.rank() == 1) ::raise(SIGKILL);
                  const int fd =
                      ::open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
                  ASSERT_GE(::dup2(fd, STDERR_FILENO), 0);
                  ::close(fd);
                  bool heard = false;
                  const ddp::checkpoint::Job job{.work = [&] {
                      heard = comes_to_have(log, "this call has failed, but its work");
                      return ddp::checkpoint::Outcome{};
                  }};
                  EXPECT_THROW(ddp::checkpoint::on_rank_0(group, 1min, job), ddp::PeerError);
                  EXPECT_TRUE(heard);
              },
              {.may_die = {1}});
}

TEST_F(CheckpointManager, TellsAllRanksOfAnyKindOfException) {
    run_ranks(2, [](ddp::ProcessGroup& group) {
        const ddp::checkpoint::Job job{
            .work = []() -> ddp::checkpoint::Outcome { throw "no std::exception"; }};
        EXPECT_THAT(checkpoint_error_of([&] { ddp::checkpoint::on_rank_0(group, 1min, job); }),
                    HasSubstr("no std::exception"));
    });
}

TEST_F(CheckpointManager, RefusesAFolderOnSomeRanksAlone) {
    run_ranks(3, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{group.rank() == 1 ? fs::path{} : dir_of(group), group};
        Net net{0};
        Optimizer optimizer{0};
        try {
            manager.resume(net, optimizer);
            ADD_FAILURE() << "no error";
        } catch (const ddp::UsageError& error) {
            EXPECT_STREQ(error.what(),
                         "checkpoint: rank 0 has a folder's name, rank 1 an empty one; give all "
                         "ranks one, or none");
        }
    });
}

// The program's line alone: a line of the library would tell nobody anything.
TEST_F(CheckpointManager, NamesNoLineWhereARankCallsSomethingElse) {
    for (const bool knows : {false, true}) {
        run_ranks(2, [&](ddp::ProcessGroup& group) {
            ddp::CheckpointManager manager{dir_of(group), group};
            Net net{0};
            Optimizer optimizer{0};
            if (knows) manager.save(1, net, optimizer);
            try {
                if (group.rank() == 0) manager.resume(net, optimizer);
                group.barrier().wait();
                ADD_FAILURE() << "no error";
            } catch (const ddp::UsageError& error) {
                EXPECT_THAT(error.what(), HasSubstr("differs between ranks"));
                const auto line = HasSubstr("pp:");
                EXPECT_EQ(testing::Matches(line)(error.what()), group.rank() == 1) << error.what();
            }
        });
    }
}

TEST_F(CheckpointManager, RefusesNoTimeAtAll) {
    run_ranks(1, [&](ddp::ProcessGroup& group) {
        EXPECT_THROW((ddp::CheckpointManager{dir_of(group), group, {.timeout = 0ms}}),
                     ddp::UsageError);
    });
}

// The region is the agent's own, which each of these ranks has got from ddp-launch.
TEST_F(CheckpointManager, CommitsNothingOnAHostWhoseLeaseHasEnded) {
    run_ranks(2, [&](ddp::ProcessGroup& group) {
        const char* const handed_over = std::getenv("DDP_CONTROL_FD");
        ASSERT_NE(handed_over, nullptr);
        const auto region = ddp::contract::region_of_process(handed_over, group.rank());
        ASSERT_TRUE(region->shared());
        const auto set_lease = [&](std::chrono::nanoseconds end) {
            group.barrier().wait();
            region->header().lease_end_ns.store(end.count());
            group.barrier().wait();
        };
        const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
        const auto lost = HasSubstr("this host has lost contact with its job");
        ddp::CheckpointManager manager{dir_of(group), group};
        Net net{0};
        Optimizer optimizer{0};
        manager.save(1, net, optimizer);
        set_lease(now + 1h);
        manager.save(2, net, optimizer);
        set_lease(now);
        EXPECT_THAT(checkpoint_error_of([&] { manager.save(3, net, optimizer); }), lost);
        manager.save_async({.epoch = 4}, net, optimizer);
        EXPECT_THAT(checkpoint_error_of([&] { manager.wait(); }), lost);
        EXPECT_EQ(manager.load_latest(net, optimizer), 2);
        set_lease(now + 1h);
        manager.save(5, net, optimizer);
        EXPECT_EQ(manager.load_latest(net, optimizer), 5);
    });
}
