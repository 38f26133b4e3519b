// Gradients of 16 bits that are reduced in float32, on GPUs.
#include "process_group/gpus.hpp"
#include "reducer/float32_reduction.hpp"

namespace {

using namespace ddp;
using namespace ddp::testing;

TEST(GpuFloat32Reduction, AveragesInFloat32AndRoundsOnce) {
    on_worlds({1, 2, 3}, [](ProcessGroup& group) {
        expect_float32_averages<bfloat16>(group, group.device());
        expect_float32_averages<float16>(group, group.device());
    });
}

TEST(GpuFloat32Reduction, LeavesWhatNobodyUses) {
    on_worlds({1, 3}, [](ProcessGroup& group) {
        expect_unused_gradients_stay<bfloat16>(group, group.device());
        expect_unused_gradients_stay<float16>(group, group.device());
    });
}

}  // namespace
