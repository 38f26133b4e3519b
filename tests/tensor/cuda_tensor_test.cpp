// Tensors on the GPU of this build, where there is one.
#include "tensor/tensor_suite.hpp"

namespace ddp::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, TensorSuite,
                         ::testing::Values(Place{"cuda", {DeviceType::cuda, 0}, {}}));

class CudaTensor : public TensorSuite {};
INSTANTIATE_TEST_SUITE_P(Cuda, CudaTensor,
                         ::testing::Values(Place{"cuda", {DeviceType::cuda, 0}, {}}));

TEST_P(CudaTensor, GoesThroughPinnedMemoryAndBack) {
    const Tensor source = randn({100'000}, 1).pin_memory();
    const Tensor there = source.to(here());
    const Tensor back = empty_like(source, {.device = Device{}, .pinned = true});
    copy_elements(there, back);
    EXPECT_TRUE(equal(back, source));
}

TEST_P(CudaTensor, CutsManyRowsAtOnce) {
    const Tensor source = counted({20'000, 5});
    const auto columns = source.chunk(5, 1);
    ASSERT_EQ(columns.size(), 5U);
    EXPECT_TRUE(equal(cat(columns, 1), source));
}

}  // namespace
}  // namespace ddp::testing
