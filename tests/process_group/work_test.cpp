// Asynchronous works: order, lifetime, several threads, and arguments that are refused.
#include "process_group/worlds.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>

#include <thread>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::HasSubstr;

TEST(Work, IsDoneAfterWait) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(100, 1.0F);
        Work work = group.all_reduce(values);
        work.wait();
        EXPECT_TRUE(work.is_completed());
        work.wait();
        EXPECT_EQ(values[99], 2.0F);
    });
}

TEST(Work, CompletesWithoutAnybodyWaiting) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(100, 1.0F);
        Work work = group.all_reduce(values);
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!work.is_completed() && std::chrono::steady_clock::now() < end) {
            std::this_thread::yield();
        }
        EXPECT_TRUE(work.is_completed());
        EXPECT_EQ(values[0], 2.0F);
    });
}

TEST(Work, ManyMayBeInFlightAndAreWaitedForInAnyOrder) {
    run_ranks(3, [](ProcessGroup& group) {
        std::vector<std::vector<std::int32_t>> buffers(50, std::vector<std::int32_t>(1000, 1));
        std::vector<Work> works;
        for (auto& buffer : buffers) works.push_back(group.all_reduce(buffer));
        for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
        for (const auto& buffer : buffers) EXPECT_EQ(buffer[999], 3);
    });
}

TEST(Work, WaitsWhenDestroyed) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<double> values(100'000, 1.0);
        { Work work = group.all_reduce(values); }
        EXPECT_EQ(values.front() + values.back(), 4.0);
    });
}

TEST(Work, OutlivesItsGroup) {
    const auto body = [](RankReporter&, const std::function<ProcessGroup()>& join) {
        std::vector<double> values(1000, 1.0);
        Work work;
        {
            ProcessGroup group = join();
            work = group.all_reduce(values);
        }
        if (!work.is_completed() || values[999] != 2.0) throw std::runtime_error("not done");
    };
    run_joining_ranks(2, body);
}

TEST(Work, DoneByDefault) {
    Work work;
    EXPECT_TRUE(work.is_completed());
    work.wait();
}

TEST(ProcessGroup, TakesCallsFromSeveralThreadsInAnAgreedOrder) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(1000, 1.0F);
        Work work = group.all_reduce(values);
        std::jthread other([&] { work.wait(); });
        work.wait();
        other.join();
        EXPECT_EQ(values[0], 2.0F);
    });
}

TEST(ProcessGroup, RefusesWrongArgumentsOnTheCallingRank) {
    ProcessGroup group = init_process_group(WorkerEnv{}, nullptr);
    std::vector<float> floats(4);
    std::vector<double> doubles(4);
    std::vector<float> more(6);
    const auto message_of = [](const auto& call) -> std::string {
        try {
            call();
            return "accepted";
        } catch (const UsageError& error) {
            return error.what();
        }
    };
    EXPECT_THAT(message_of([&] { group.all_reduce(floats, doubles, ReduceOp::sum).wait(); }),
                HasSubstr("the input holds float32, the output float64"));
    EXPECT_THAT(message_of([&] { group.all_gather(floats, more).wait(); }),
                HasSubstr("a tensor of 4 elements, not 6"));
    EXPECT_THAT(message_of([&] { group.broadcast(floats, Root{1}).wait(); }),
                HasSubstr("root 1 is not a rank of a group of 1"));
    TensorView on_gpu = floats;
    on_gpu.device = {DeviceType::cuda, 0};
    EXPECT_THAT(message_of([&] { group.all_reduce(on_gpu).wait(); }), HasSubstr("cuda:0"));
    EXPECT_EQ(group.all_reduce(5), 5) << "a refused call must not fail the group";
}

}  // namespace
