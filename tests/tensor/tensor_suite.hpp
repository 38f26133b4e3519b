// What tensors promise on any device. Each program that includes this names its places:
//   INSTANTIATE_TEST_SUITE_P(Cpu, TensorSuite, Values(Place{"cpu", {}, {DeviceType::cpu, 1}}));
// Without the device its tests are skipped; with DDP_REQUIRE_GPU=1 they fail.
#pragma once

#include "tensor/device_arrays.hpp"
#include "tensor/tensor_places.hpp"

#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace ddp::testing {

class TensorSuite : public ::testing::TestWithParam<Place> {
protected:
    void SetUp() override {
        if (GetParam().make != nullptr) {
            api_.reset(GetParam().make());
            device::use_device_api(api_.get());
        }
        if (here().type == DeviceType::cpu || is_available()) return;
        const std::string reason = device::device_api().probe().reason;
        const char* required = std::getenv("DDP_REQUIRE_GPU");
        if (required != nullptr && std::string(required) == "1") {
            FAIL() << "DDP_REQUIRE_GPU=1, but: " << reason;
        }
        GTEST_SKIP() << reason;
    }
    void TearDown() override {
        if (api_ != nullptr) device::use_device_api(nullptr);
    }
    static Device here() { return GetParam().here; }
    static Device there() { return GetParam().there; }
    // 0, 1, 2, ...
    static Tensor counted(const Shape& shape, DType dtype = DType::float32) {
        std::vector<double> values(shape.numel());
        std::iota(values.begin(), values.end(), 0.0);
        return tensor(values, shape, {.device = here(), .dtype = dtype});
    }
    static std::vector<double> values_of(const Tensor& tensor) {
        const Tensor wide = tensor.to(Device{}, DType::float64);
        const auto values = wide.as<double>();
        return {values.begin(), values.end()};
    }

private:
    const Variable cpu_devices_{"DDP_CPU_DEVICES", "3"};
    std::unique_ptr<device::DeviceApi> api_;
};

using Values = std::vector<double>;

TEST_P(TensorSuite, FactoriesFillEveryType) {
    for_each_type([](auto type) {
        const TensorOptions options{.device = here(),
                                    .dtype = dtype_of<typename decltype(type)::type>()};
        const Tensor zero = zeros({2, 3}, options);
        EXPECT_EQ(zero.shape(), (Shape{2, 3}));
        EXPECT_EQ(zero.device(), here());
        EXPECT_EQ(zero.dtype(), *options.dtype);
        EXPECT_EQ(values_of(zero), Values(6, 0));
        EXPECT_EQ(values_of(ones({3}, options)), Values(3, 1));
        const bool is_bool = options.dtype == DType::boolean;
        EXPECT_EQ(values_of(full({}, 7, options)), Values(1, is_bool ? 1 : 7));
        EXPECT_EQ(empty({4, 0}, options).numel(), 0U);
    });
}

TEST_P(TensorSuite, FactoriesTakeDeviceAndTypeOfAnotherTensor) {
    const Tensor model = counted({2, 2}, DType::int32);
    for (const Tensor& made : {empty_like(model), zeros_like(model), ones_like(model)}) {
        EXPECT_EQ(made.shape(), model.shape());
        EXPECT_EQ(made.device(), here());
        EXPECT_EQ(made.dtype(), DType::int32);
        EXPECT_NE(made.data(), model.data());
    }
    EXPECT_EQ(values_of(ones_like(model)), Values(4, 1));
    const Tensor other = zeros_like(model, {.device = there(), .dtype = DType::float64});
    EXPECT_EQ(other.device(), there());
    EXPECT_EQ(other.dtype(), DType::float64);
}

TEST_P(TensorSuite, AreOnTheDeviceOfTheScope) {
    const DeviceScope scope{here()};
    EXPECT_EQ(zeros({1}).device(), here());
    EXPECT_EQ(tensor({1.0F}).device(), here());
    EXPECT_EQ(randn({1}, 1).device(), here());
    EXPECT_EQ(zeros({1}, {.device = there()}).device(), there());
}

TEST_P(TensorSuite, NormalNumbersAreTheSameEverywhere) {
    for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
        const Tensor at_home = randn({7, 5}, 3, {.device = Device{}, .dtype = dtype});
        EXPECT_TRUE(equal(randn({7, 5}, 3, {.device = here(), .dtype = dtype}), at_home));
        EXPECT_FALSE(equal(randn({7, 5}, 4, {.device = here(), .dtype = dtype}), at_home));
    }
}

TEST_P(TensorSuite, MoveAndLeaveTheSourceWhereItIs) {
    const Tensor source = counted({2, 3});
    const Tensor moved = source.to(there());
    EXPECT_EQ(moved.device(), there());
    EXPECT_EQ(source.device(), here());
    EXPECT_NE(moved.data(), source.data());
    EXPECT_EQ(values_of(moved), (Values{0, 1, 2, 3, 4, 5}));
    copy_elements(ones({2, 3}, {.device = Device{}}), source);
    EXPECT_EQ(values_of(moved), (Values{0, 1, 2, 3, 4, 5})) << "memory of its own";
    EXPECT_EQ(values_of(moved.to(here())), values_of(moved));
}

TEST_P(TensorSuite, ToWhatItIsSharesTheMemory) {
    const Tensor source = counted({4});
    EXPECT_EQ(source.to(here()).data(), source.data());
    EXPECT_EQ(source.to(DType::float32).data(), source.data());
    EXPECT_NE(source.clone().data(), source.data());
    EXPECT_TRUE(equal(source.clone(), source));
}

TEST_P(TensorSuite, ConvertEachTypeIntoEachOnTheWay) {
    for_each_type([](auto from_type) {
        const DType from = dtype_of<typename decltype(from_type)::type>();
        const Tensor source = counted({5}, from);
        for_each_type([&](auto to_type) {
            const DType to = dtype_of<typename decltype(to_type)::type>();
            const bool is_bool = from == DType::boolean || to == DType::boolean;
            const Values expected = is_bool ? Values{0, 1, 1, 1, 1} : Values{0, 1, 2, 3, 4};
            SCOPED_TRACE(std::string(to_string(from)) + " to " + to_string(to));
            EXPECT_EQ(values_of(source.to(to)), expected);
            const Tensor moved = source.to(there(), to);
            EXPECT_EQ(moved.dtype(), to);
            EXPECT_EQ(moved.device(), there());
            EXPECT_EQ(values_of(moved), expected);
        });
    });
}

TEST_P(TensorSuite, TruncateToIntegers) {
    const Tensor source = tensor({-2.75, -0.5, 0.0, 0.5, 2.75}, {.device = here()});
    EXPECT_EQ(values_of(source.to(DType::int32)), (Values{-2, 0, 0, 0, 2}));
    EXPECT_EQ(values_of(source.to(DType::int8)), (Values{-2, 0, 0, 0, 2}));
    EXPECT_EQ(values_of(source.to(DType::boolean)), (Values{1, 1, 0, 1, 1}));
    EXPECT_EQ(values_of(source.to(there(), DType::int64)), (Values{-2, 0, 0, 0, 2}));
}

TEST_P(TensorSuite, RowsShareTheMemory) {
    const Tensor source = counted({4, 3});
    const Tensor rows = source.narrow(0, {1, 2});
    EXPECT_EQ(rows.shape(), (Shape{2, 3}));
    EXPECT_EQ(values_of(rows), (Values{3, 4, 5, 6, 7, 8}));
    copy_elements(zeros({2, 3}, {.device = Device{}}), rows);
    EXPECT_EQ(values_of(source), (Values{0, 1, 2, 0, 0, 0, 0, 0, 0, 9, 10, 11}));
    EXPECT_EQ(values_of(source.narrow(0, {-1, 1})), (Values{9, 10, 11}));
    EXPECT_EQ(source[3].shape(), Shape{3});
    EXPECT_EQ(values_of(source[-1]), (Values{9, 10, 11}));
    EXPECT_EQ(source[-1][0].shape(), Shape{});
    EXPECT_EQ(values_of(source['\3']), (Values{9, 10, 11}));
    copy_elements(ones({3}, {.device = Device{}}), source[std::size_t{0}]);
    EXPECT_EQ(values_of(source), (Values{1, 1, 1, 0, 0, 0, 0, 0, 0, 9, 10, 11}));
    EXPECT_EQ(zeros({2, 0}, {.device = here()})[1].shape(), Shape{0});
}

TEST_P(TensorSuite, PartsOfOtherDimensionsAreContiguousCopies) {
    for (const DType dtype : {DType::float32, DType::int64, DType::uint8}) {
        const Tensor source = counted({2, 3, 2}, dtype);
        const Tensor part = source.narrow(1, {1, 2});
        EXPECT_EQ(part.shape(), (Shape{2, 2, 2}));
        EXPECT_EQ(values_of(part), (Values{2, 3, 4, 5, 8, 9, 10, 11}));
        EXPECT_EQ(values_of(source.narrow(-1, {1, 1})), (Values{1, 3, 5, 7, 9, 11}));
        EXPECT_EQ(source.narrow(2, {2, 0}).numel(), 0U);
    }
}

TEST_P(TensorSuite, CatUndoesChunkInEveryDimension) {
    for (const DType dtype : {DType::float32, DType::int32, DType::boolean}) {
        const Tensor source = counted({5, 3, 4}, dtype);
        for (const int dim : {0, 1, 2, -1}) {
            const auto pieces = source.chunk(2, dim);
            ASSERT_EQ(pieces.size(), 2U);
            const Tensor joined = cat(pieces, dim);
            EXPECT_EQ(joined.device(), here());
            EXPECT_TRUE(equal(joined, source)) << "dimension " << dim;
        }
    }
}

TEST_P(TensorSuite, ItemReadsTheOnlyElement) {
    EXPECT_EQ(full({1, 1}, 2.5, {.device = here()}).item<float>(), 2.5F);
    EXPECT_EQ(full({}, 2.5, {.device = here()}).item<std::int64_t>(), 2);
    EXPECT_THROW(static_cast<void>(counted({2}).item<float>()), UsageError);
}

TEST_P(TensorSuite, PrintDeviceAndTypeWhereTheyAreNotTheUsual) {
    const std::string where = here() == Device{} ? "" : ", device='" + to_string(here()) + "'";
    EXPECT_EQ(to_string(counted({2, 2})), "tensor([[0., 1.],\n        [2., 3.]]" + where + ")");
    EXPECT_EQ(to_string(full({}, 0.5, {.device = here(), .dtype = DType::float64})),
              "tensor(0.5000" + where + ", dtype=float64)");
}

}  // namespace ddp::testing
