// Several ranks, a process each, on one real GPU with the real NCCL: what two ranks show that one
// does not. tools/gpu-check.sh runs it where there is a GPU, the suite over the stand-ins.
#include "process_group/gpu_arena.hpp"
#include "process_group/gpu_averages.hpp"
#include "process_group/gpu_captured_backward.hpp"
#include "process_group/gpu_program.hpp"
#include "process_group/needs_gpu.hpp"
#include "process_group/reports.hpp"
#include "reducer/float32_reduction.hpp"
#include "support/seed_for_ranks.hpp"
#ifdef DDP_STANDIN_CUDA
#include "standin_cuda/stand_in.hpp"
#endif

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::HasSubstr;

class CudaRanks : public NeedsGpu {};

constexpr unsigned programs = 6;  // of each world

// Beside this program where both were carried to, else where it was built.
std::string launcher() {
    const auto beside =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ddp-launch";
    return std::filesystem::exists(beside) ? beside.string() : DDP_LAUNCH_PATH;
}

RunRanksOptions sharing_the_gpu(InitOptions init = {}, std::vector<int> may_die = {}) {
    init.backend = Backend::nccl;
    return {.timeout = 110s,
            .may_die = std::move(may_die),
            .init = init,
            .arguments = {"--oversubscribe-gpu"},
            .launcher = launcher()};
}

void on_shared_gpu(std::initializer_list<int> worlds,
                   const std::function<void(ProcessGroup&)>& body,
                   const CallSite& where = CallSite::here()) {
    for (const int ranks : worlds) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks");
        run_ranks(ranks, body, sharing_the_gpu(), where);
    }
}

class GpuFloats {
public:
    explicit GpuFloats(ProcessGroup& group, float value = 1)
        : tensor_(group.allocate({1'000}, DType::float32, group.device())) {
        const std::vector<float> values(1'000, value);
        device::copy(group.device(), tensor_.view().data, values.data(), tensor_.view().bytes(),
                     {});
        device::finish(group.device(), {});
    }
    TensorView view() const { return tensor_.view(); }
    float last() const {
        const auto bytes = device::read(view());
        float value = 0;
        std::memcpy(&value, bytes.data() + bytes.size() - sizeof value, sizeof value);
        return value;
    }

private:
    Tensor tensor_;
};

// "nothing", or what the next all-reduce throws.
std::string next_all_reduce(ProcessGroup& group, const GpuFloats& values) {
    return error_of([&] { group.all_reduce(values.view()).wait(); });
}

void expect_all_reduce(ProcessGroup& group) {
    const GpuFloats values(group);
    EXPECT_EQ(next_all_reduce(group, values), "nothing");
    EXPECT_EQ(values.last(), static_cast<float>(group.size()));
}

// As a kernel of the program's that reads where nothing is.
void break_the_gpu(const Device& gpu) {
#ifdef DDP_STANDIN_CUDA
    standin_cuda::break_device(gpu.index, cudaErrorIllegalAddress);
#else
    constexpr std::size_t size = 1'000;
    static device::Buffer memory;  // which cannot be freed any more
    const TensorView packed{memory.reserve(gpu, size), {size}, DType::uint8, gpu};
    const device::PackItem nowhere{reinterpret_cast<void*>(std::uintptr_t{4096}), size, 0};
    device::device_api().pack({&nowhere, 1}, packed, 1, {});
#endif
}

TEST_F(CudaRanks, DoEveryCollectiveAsTheModelSays) {
    const auto seed = seed_for_ranks();
    on_shared_gpu({2, 3, 4},
                  [&](ProcessGroup& group) { expect_collectives_of_the_model(group, seed, 60); });
}

TEST_F(CudaRanks, RunRandomProgramsAsTheModelSays) {
    const unsigned seed = seed_for_ranks();
    on_shared_gpu({2, 3, 4}, [&](ProcessGroup& group) {
        for (unsigned own = seed; own < seed + programs; ++own) {
            SCOPED_TRACE("program " + std::to_string(own));
            GpuProgram(group, own).run();
            if (::testing::Test::HasFailure()) return;
        }
    });
}

TEST_F(CudaRanks, AverageGradients) {
    on_shared_gpu({2, 4}, [](ProcessGroup& group) { expect_averages(group); });
}

TEST_F(CudaRanks, ReduceGradientsOf16BitsInFloat32) {
    on_shared_gpu({2, 3}, [](ProcessGroup& group) {
        expect_float32_averages<bfloat16>(group, group.device());
        expect_unused_gradients_stay<float16>(group, group.device());
    });
}

TEST_F(CudaRanks, HaveTheBitsOfACapturedBackward) {
    on_shared_gpu({2, 3}, [](ProcessGroup& group) {
        for (const bool views : {true, false}) {
            expect_same_bits_of_captured_backward(group, {.gradient_as_bucket_view = views});
        }
    });
}

TEST_F(CudaRanks, JoinAndLeaveAgainAndAgain) {
    const auto body = [](RankReporter&, const Join& join) {
        for (int i = 0; i < 3; ++i) {
            ProcessGroup group = join();
            expect_all_reduce(group);
        }
    };
    const auto failures = failures_of_ranks(2, body, sharing_the_gpu());
    for (const RankFailure& failure : failures) ADD_FAILURE() << failure.message;
}

TEST_F(CudaRanks, GoOnWithoutTheMemoryThatThereIsNot) {
    on_shared_gpu({2}, [](ProcessGroup& group) {
        EXPECT_THROW(device::device_api().allocate(std::size_t{1} << 50), SystemError);
        EXPECT_THROW(static_cast<void>(
                         group.allocate({std::int64_t{1} << 48}, DType::float32, group.device())),
                     Error);
        expect_all_reduce(group);
    });
}

TEST_F(CudaRanks, SayWhoIsStopped) {
    const auto reports =
        reports_with(sharing_the_gpu({.timeout = 4s}, {1}), 2, [](const Join& join) {
            ProcessGroup group = join();
            expect_all_reduce(group);
            const GpuFloats values(group);
            const auto own = static_cast<std::int64_t>(::getpid());
            const auto other = static_cast<::pid_t>(group.all_reduce(own) - own);
            if (group.rank() == 1) ::raise(SIGSTOP);
            std::string error = next_all_reduce(group, values);
            ::kill(other, SIGKILL);
            return error;
        });
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_THAT(reports[0].message, HasSubstr("TimeoutError nccl: all_reduce of 1000 float32"));
}

// Two of three ranks have a group with the resources of all three's.
TEST_F(CudaRanks, FailInAllGroupsThatShareWhenOneDies) {
    const auto reports = reports_with(sharing_the_gpu({}, {1}), 3, [](const Join& join) {
        ::setenv("DDP_NCCL_SHARE", "1", 1);
        ::setenv("DDP_LOG_LEVEL", "debug", 1);
        ::testing::internal::CaptureStderr();
        ProcessGroup group = join();
        const std::array two{0, 1};
        std::optional<ProcessGroup> part = group.new_group(two);
        const std::string log = ::testing::internal::GetCapturedStderr();
        EXPECT_EQ(log.find("with the resources of another group") != std::string::npos,
                  group.rank() < 2)
            << log;
        expect_all_reduce(group);
        if (part) expect_all_reduce(*part);
        const GpuFloats values(group), more(group);
        if (group.rank() == 1) ::raise(SIGKILL);
        Work in_part;
        if (part) in_part = part->all_reduce(values.view());
        std::string error = next_all_reduce(group, more);
        if (part) {
            EXPECT_EQ(error_of([&] { in_part.wait(); }), error);
        }
        return error;
    });
    ASSERT_EQ(reports.size(), 2U);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message, HasSubstr("PeerError(1) "));
    }
}

// CUDA keeps a thread in cudaFree until all kernels have ended.
TEST_F(CudaRanks, SayWhoHasDiedAlsoWhereCudaKeepsAThread) {
    const auto reports = reports_with(sharing_the_gpu({}, {1}), 2, [](const Join& join) {
        ProcessGroup group = join();
        expect_all_reduce(group);
        const GpuFloats values(group);
        void* const other = device::device_api().allocate(1'000);
        if (group.rank() == 1) {
            std::this_thread::sleep_for(1s);
            ::raise(SIGKILL);
        }
        Work waits = group.all_reduce(values.view());
        const std::jthread frees([&] { device::device_api().free(other); });
        return error_of([&] { waits.wait(); });
    });
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_THAT(reports[0].message, HasSubstr("PeerError(1) "));
}

// The rank on whose GPU a kernel fails, and the other.
TEST_F(CudaRanks, SayWhoseGpuHasFailed) {
    const auto reports = reports_with(sharing_the_gpu(), 2, [](const Join& join) {
        ProcessGroup group = join();
        expect_all_reduce(group);
        const GpuFloats values(group);
        if (group.rank() == 1) break_the_gpu(group.device());
        return next_all_reduce(group, values);
    });
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_THAT(reports[0].message, HasSubstr("PeerError(1) "));
    EXPECT_THAT(reports[1].message, HasSubstr("BackendError "));
    EXPECT_THAT(reports[1].message, HasSubstr("llegal"));
}

// With the group as an object that the end of main takes down, or that nothing does.
class CudaRanksAtExit : public NeedsGpu, public ::testing::WithParamInterface<bool> {};
TEST_P(CudaRanksAtExit, LeaveByThemselves) {
    const auto body = [](RankReporter&, const Join& join) {
        static std::unique_ptr<ProcessGroup> group;
        group = std::make_unique<ProcessGroup>(join());
        expect_all_reduce(*group);
        if (GetParam()) static_cast<void>(group.release());
        std::exit(0);
    };
    const auto failures = failures_of_ranks(2, body, sharing_the_gpu());
    ASSERT_EQ(failures.size(), 2U);
    for (const RankFailure& failure : failures) {
        EXPECT_EQ(failure.message, "left with exit code 0 before its body was finished");
    }
}
INSTANTIATE_TEST_SUITE_P(Group, CudaRanksAtExit, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "Kept" : "Destroyed"; });

}  // namespace
