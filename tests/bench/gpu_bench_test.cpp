// ddp-bench on GPU memory, over the stand-ins for GPUs and NCCL: every collective is right, of
// memory of its own and of the group's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "examples/run_program.hpp"

namespace {

using namespace ddp::tests;
using ::testing::HasSubstr;

ProgramResult gpu_bench(int ranks, std::vector<std::string> words) {
    words.insert(words.begin(), DDP_GPU_BENCH);
    return run_ranks_of(ranks, words);
}

class GpuBench : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Collectives, GpuBench,
                         ::testing::Values("all_reduce", "reduce", "broadcast", "all_gather",
                                           "gather", "scatter", "reduce_scatter", "all_to_all",
                                           "send_recv"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(GpuBench, IsRightOnThreeRanks) {
    for (const char* const path : {"user", "shared"}) {
        const ProgramResult run = gpu_bench(3, {GetParam(), "--path", path, "--max-bytes", "64K",
                                                "--factor", "64", "--iters", "2"});
        EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
        EXPECT_THAT(run.out, HasSubstr("backend nccl"));
        EXPECT_THAT(run.out, HasSubstr("tensors: cuda:0"));
    }
}

TEST(GpuBenchOptions, CpuMemoryBesideGpus) {
    const ProgramResult run =
        gpu_bench(2, {"all_reduce", "--device", "cpu", "--max-bytes", "4", "--iters", "2"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.out.find("cuda:"), std::string::npos);
}

TEST(GpuBenchOptions, TheFloorIsTheHosts) {
    const ProgramResult run = gpu_bench(2, {"all_reduce", "--floor"});
    EXPECT_NE(run.exit_code, 0);
    EXPECT_THAT(run.err, HasSubstr("--floor is of the host's memory"));
}

TEST(GpuCost, MeasuresFurtherGroups) {
    const ProgramResult run = run_ranks_of(2, {DDP_GPU_COST, "--quick"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("\"split_ms\": "));
}

TEST(GpuCost, MeasuresCallsAndPacking) {
    const ProgramResult run = run_program({DDP_GPU_COST, "--quick"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("\"over_us\": "));
    EXPECT_THAT(run.out, HasSubstr("\"share\": "));
}

}  // namespace
