// What does not fit is refused in words, and what tensors do on the CPU alone.
#include <ddp/tensor_functions.hpp>

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

// That there is no memory is for the tests to see, not for the sanitizers.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }  // NOLINT
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }  // NOLINT

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Function>
std::string usage_error_of(const Function& function) {
    try {
        static_cast<void>(function());
    } catch (const UsageError& error) {
        return error.what();
    }
    return "no UsageError";
}

TEST(Tensor, HoldsACopyOfTheValuesItIsMadeFrom) {
    std::vector<float> values{1, 2, 3, 4, 5, 6};
    const Tensor made = tensor(values, Shape{2, 3});
    values[0] = 7;
    EXPECT_EQ(made.as<float>()[0], 1);
    EXPECT_EQ(made.shape(), (Shape{2, 3}));
    EXPECT_EQ(made.size(-1), 3);
    EXPECT_EQ(tensor({1, 2, 3}).dtype(), DType::int32);
    EXPECT_EQ(tensor({1, 2, 3}, {.dtype = DType::int64}).dtype(), DType::int64);
    EXPECT_EQ(tensor({true, false}).dtype(), DType::boolean);
    EXPECT_EQ(tensor(std::span<const float>(values).subspan(4)).numel(), 2U);
    EXPECT_EQ(tensor(std::vector<double>{}).shape(), Shape{0});
}

TEST(Tensor, IsEmptyWhenNothingIsSaid) {
    const Tensor none;
    EXPECT_EQ(none.numel(), 0U);
    EXPECT_EQ(to_string(none), "tensor([])");
    EXPECT_EQ(none.chunk(3).size(), 3U);
    EXPECT_TRUE(equal(none.clone(), none));
    EXPECT_EQ(none.view({0, 4}).shape(), (Shape{0, 4}));
}

TEST(Tensor, KeepsItsMemoryAsLongAsAPartOfIt) {
    Tensor row;
    {
        const Tensor whole = ones({3, 2});
        row = whole[1];
    }
    EXPECT_EQ(row.as<float>()[1], 1);
}

TEST(Tensor, ResultOfToIsNotTheTensor) {
    const Tensor x = ones({2});
    const Tensor y = x.to(DType::float64);
    EXPECT_EQ(x.dtype(), DType::float32);
    EXPECT_EQ(y.dtype(), DType::float64);
}

TEST(Tensor, IsViewedInAnyShapeOfAsManyElements) {
    const Tensor x = tensor(std::vector<int>{0, 1, 2, 3, 4, 5});
    EXPECT_EQ(x.view({2, 3}).data(), x.data());
    EXPECT_EQ(x.view({-1, 2}).shape(), (Shape{3, 2}));
    EXPECT_EQ(x.view({3, -1, 1}).shape(), (Shape{3, 2, 1}));
    EXPECT_EQ(x.view(Shape{1, 6}).shape(), (Shape{1, 6}));
    EXPECT_EQ(ones({1}).view({}).shape(), Shape{});
    EXPECT_THAT(usage_error_of([&] {
                    return x.view({4, 2});
                }),
                AllOf(HasSubstr("view: shape [4, 2]"), HasSubstr("shape [6]")));
    EXPECT_THAT(usage_error_of([&] {
                    return x.view({-1, 4});
                }),
                AllOf(HasSubstr("in place of the -1"), HasSubstr("6 elements")));
    EXPECT_THAT(usage_error_of([&] { return Tensor{}.view({-1, 0}); }), HasSubstr("the -1"));
    EXPECT_THROW(static_cast<void>(x.view({-1, -1})), UsageError);
    EXPECT_THROW(static_cast<void>(x.view({-2, -3})), UsageError);
    // 2^32 * 2^32 is 0 in 64 bits.
    EXPECT_THROW(static_cast<void>(Tensor{}.view({1LL << 32, 1LL << 32})), UsageError);
    EXPECT_THROW(static_cast<void>(x.view({1, 1, 1, 1, 1, 1, 1, -1, 6})), UsageError);
}

TEST(Tensor, HasNoPartsBeyondItsEnds) {
    const Tensor x = zeros({4, 3});
    EXPECT_EQ(x.narrow(0, {4, 0}).shape(), (Shape{0, 3}));
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    for (const Slice& slice : {Slice{0, 5}, Slice{4, 1}, Slice{-5, 1}, Slice{2, -1},
                               Slice{1, largest}, Slice{largest, largest}}) {
        EXPECT_THAT(usage_error_of([&] { return x.narrow(0, slice); }),
                    AllOf(HasSubstr("narrow: "), HasSubstr("shape [4, 3]")));
    }
    EXPECT_THAT(usage_error_of([&] {
                    return x.narrow(2, {0, 1});
                }),
                HasSubstr("narrow: dimension 2 of a tensor of shape [4, 3], which has 2"));
    for (const std::int64_t index : {std::int64_t{4}, std::int64_t{-5}, largest, -largest - 1}) {
        EXPECT_THAT(usage_error_of([&] { return x[index]; }),
                    AllOf(HasSubstr("operator[]: index "), HasSubstr("shape [4, 3]")));
    }
    EXPECT_THROW(static_cast<void>(x[std::numeric_limits<std::size_t>::max()]), UsageError);
    EXPECT_THAT(usage_error_of([&] { return ones({})[0]; }), HasSubstr("operator[]: dimension 0"));
    EXPECT_THAT(usage_error_of([&] { return x.size(-3); }), HasSubstr("size: dimension -3"));
    EXPECT_THAT(usage_error_of([&] { return zeros({}).chunk(2); }),
                HasSubstr("chunk: dimension 0"));
    EXPECT_THAT(usage_error_of([&] { return x.chunk(0); }), HasSubstr("one is the least"));
    EXPECT_EQ(x.chunk(largest).size(), 4U);
}

TEST(Tensor, CatSaysWhatDoesNotFit) {
    const Tensor x = zeros({2, 3});
    EXPECT_THAT(usage_error_of([&] {
                    return cat({x, x.to(DType::float64)});
                }),
                HasSubstr("cat: tensor 1 holds float64, the first one float32"));
    EXPECT_THAT(usage_error_of([&] {
                    return cat({x, x, zeros({2, 4})});
                }),
                AllOf(HasSubstr("tensor 2 has shape [2, 4]"), HasSubstr("dimension 0")));
    EXPECT_THAT(usage_error_of([&] { return cat({x, zeros({2})}); }), HasSubstr("shape [2]"));
    EXPECT_THAT(usage_error_of([] { return cat({}); }), HasSubstr("no tensors"));
    EXPECT_THAT(usage_error_of([] { return cat({ones({})}); }), HasSubstr("cat: dimension 0"));
    EXPECT_EQ(cat({x, zeros({0, 3}), x}).shape(), (Shape{4, 3}));
    EXPECT_EQ(cat({x, zeros({2, 4})}, 1).shape(), (Shape{2, 7}));
}

TEST(Tensor, RefusesShapesBeyondAllMemory) {
    EXPECT_THAT(usage_error_of([] {
                    return empty({1LL << 40, 1LL << 40});
                }),
                HasSubstr("more bytes than there are addresses"));
    EXPECT_THAT(usage_error_of([] { return empty({1LL << 61}, {.dtype = DType::float64}); }),
                HasSubstr("shape [2305843009213693952] and dtype float64"));
    EXPECT_EQ(empty({1LL << 40, 1LL << 40, 0}).numel(), 0U);
    try {
        static_cast<void>(empty({1LL << 60}, {.dtype = DType::uint8}));
        ADD_FAILURE() << "an exabyte";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOMEM);
        EXPECT_THAT(error.what(), HasSubstr("allocate 1152921504606846976 bytes on cpu"));
    }
}

TEST(Tensor, CopiesBetweenTensorsOfOneShapeOnly) {
    const Tensor target = zeros({2, 2}, {.dtype = DType::int64});
    copy_elements(tensor({1.5F, 2.5F, -3.5F, 4.0F}).view({2, 2}), target);
    EXPECT_EQ(target.as<std::int64_t>()[2], -3);
    EXPECT_THAT(usage_error_of([&] {
                    copy_elements(zeros({4}), target);
                    return 0;
                }),
                HasSubstr("from shape [4] to shape [2, 2]"));
}

TEST(Tensor, WhatDoesNotFitAnIntegerBecomesSomeInteger) {
    const float infinity = std::numeric_limits<float>::infinity();
    const Tensor odd = tensor({infinity, -infinity, std::nanf(""), 1e30F, -1e30F});
    for (const DType dtype :
         {DType::int8, DType::uint8, DType::int16, DType::int32, DType::int64}) {
        EXPECT_EQ(odd.to(dtype).numel(), 5U);
    }
    EXPECT_TRUE(tensor({std::nanf("")}).to(DType::boolean).item<bool>());
    EXPECT_EQ(tensor({300}).to(DType::uint8).item<int>(), 44) << "integers wrap";
}

TEST(Tensor, RandnIsForFloatingPoint) {
    EXPECT_THAT(usage_error_of([] { return randn({2}, 1, {.dtype = DType::int64}); }),
                HasSubstr("randn: normal numbers of dtype int64"));
    EXPECT_EQ(randn({0}, 1).numel(), 0U);
}

TEST(Tensor, RandnHasMeanZeroAndVarianceOne) {
    constexpr int count = 100'000;
    double sum = 0;
    double squares = 0;
    const Tensor numbers = randn({count}, 5);
    for (const float value : numbers.as<float>()) {
        sum += value;
        squares += static_cast<double>(value) * value;
    }
    EXPECT_NEAR(sum / count, 0, 0.02);
    EXPECT_NEAR(squares / count, 1, 0.03);
}

TEST(Tensor, IsComparedByShapeTypeAndValues) {
    const Tensor x = tensor({1.0F, 2.0F});
    EXPECT_TRUE(equal(x, x.clone()));
    EXPECT_FALSE(equal(x, x.to(DType::float64)));
    EXPECT_FALSE(equal(x, x.view({1, 2})));
    EXPECT_FALSE(equal(x, tensor({1.0F, 2.5F})));
    EXPECT_TRUE(allclose(x, tensor({1.0, 2.00001})));
    EXPECT_FALSE(allclose(x, tensor({1.0, 2.001})));
    EXPECT_TRUE(allclose(x, tensor({1.0, 2.001}), {.relative = 0.01}));
    EXPECT_FALSE(allclose(x, x.view({2, 1})));
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_TRUE(allclose(tensor({infinity}), tensor({infinity})));
    EXPECT_FALSE(allclose(tensor({1.0}), tensor({infinity})));
    EXPECT_FALSE(allclose(tensor({std::nan("")}), tensor({std::nan("")})));
}

TEST(Tensor, IsPrintedOnStreams) {
    std::ostringstream out;
    out << tensor({0.5F, 2.0F}) << " " << tensor({0.5F, 2.0F}).shape();
    EXPECT_EQ(out.str(), "tensor([0.5000, 2.0000]) [2]");
}

}  // namespace
}  // namespace ddp
