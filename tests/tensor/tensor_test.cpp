// Shapes and borrowed tensors.
#include <ddp/tensor.hpp>

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace {

using namespace ddp;

TEST(Shape, CountsElements) {
    EXPECT_EQ((Shape{2, 3, 4}.numel()), 24U);
    EXPECT_EQ(Shape{}.numel(), 1U);
    EXPECT_EQ((Shape{5, 0}.numel()), 0U);
}

TEST(Shape, PrintsAsPyTorchDoes) {
    EXPECT_EQ(to_string(Shape{15, 5}), "[15, 5]");
    EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Shape, RefusesNegativeExtentsAndTooManyDimensions) {
    EXPECT_THROW((Shape{2, -1}), UsageError);
    EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), UsageError);
}

TEST(Shape, IsComparedByItsExtents) {
    EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
    EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
    EXPECT_NE((Shape{6}), (Shape{6, 1}));
}

TEST(TensorView, IsMadeFromSpansVectorsAndArrays) {
    std::vector<float> vector(6);
    std::array<std::int64_t, 2> array{};
    const TensorView from_vector = vector;
    const TensorView from_array = array;
    const TensorView from_span = std::span<float>(vector).subspan(2);
    EXPECT_EQ(from_vector.data, vector.data());
    EXPECT_EQ(from_vector.bytes(), 24U);
    EXPECT_EQ(from_array.dtype, DType::int64);
    EXPECT_EQ(from_span.numel(), 4U);
    EXPECT_EQ(to_string(from_vector.device), "cpu");
}

TEST(TensorView, IsNotMadeFromWhatItMustNotChangeOrOutlive) {
    EXPECT_FALSE((std::is_convertible_v<const std::vector<float>&, TensorView>));
    EXPECT_FALSE((std::is_convertible_v<std::vector<float>, TensorView>));
    EXPECT_FALSE((std::is_convertible_v<std::vector<char>&, TensorView>));
}

TEST(TensorView, GivesItsElementsOnlyInTheirType) {
    std::vector<float> vector{1, 2};
    const TensorView view = vector;
    EXPECT_EQ(view.as<float>()[1], 2);
    EXPECT_THROW(static_cast<void>(view.as<double>()), UsageError);
}

TEST(DType, KnowsItsSizeAndName) {
    EXPECT_EQ(size_of(DType::float64), 8U);
    EXPECT_EQ(size_of(dtype_of<std::uint8_t>()), 1U);
    EXPECT_STREQ(to_string(DType::int32), "int32");
}

TEST(Device, PrintsAsPyTorchDoes) { EXPECT_EQ(to_string(Device{DeviceType::cuda, 1}), "cuda:1"); }

}  // namespace
