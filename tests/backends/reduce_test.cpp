// The reduction's order and its bits are promises: these tests would fail for any other. Each set
// of kernels is compared with an independent model on every type, operation and kind of memory.
#include "backends/reduction/reduce.hpp"

#include "backends/reduce_model.hpp"
#include "support/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::reduce_test;
using backends::Kernels;
using backends::Store;

constexpr std::byte guard{0xa5};
constexpr std::size_t guard_bytes = 128;

// Bytes at a chosen distance from an aligned address, and guards around them.
class Buffer {
public:
    Buffer(std::size_t bytes, std::size_t offset)
        : bytes_(bytes), storage_(bytes + 3 * guard_bytes + offset, guard) {
        const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) + guard_bytes;
        start_ = guard_bytes + (64 - address % 64) % 64 + offset;
    }
    std::byte* data() { return storage_.data() + start_; }
    const std::byte* data() const { return storage_.data() + start_; }
    bool guards_are_whole() const {
        const auto whole = [](std::byte b) { return b == guard; };
        const auto begin = storage_.begin() + static_cast<std::ptrdiff_t>(start_);
        return std::all_of(storage_.begin(), begin, whole) &&
               std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), storage_.end(), whole);
    }

private:
    std::size_t bytes_;
    std::vector<std::byte> storage_;
    std::size_t start_;
};

class ReduceKernels : public ::testing::TestWithParam<std::tuple<Kernels, DType>> {
protected:
    void SetUp() override {
        if (!backends::use_kernels(std::get<0>(GetParam()))) {
            GTEST_SKIP() << "this processor cannot run them";
        }
    }
    void TearDown() override { backends::use_kernels(Kernels::automatic); }
    static DType dtype() { return std::get<1>(GetParam()); }
};

// One operation on one number of inputs: the inputs and what must come out.
template <class T>
struct Case {
    Case(ReduceOp::Kind op_, std::size_t n, std::size_t elements, std::mt19937& random) : op(op_) {
        for (std::size_t r = 0; r < n; ++r) {
            if (op == ReduceOp::premul_sum) {
                factors.push_back(std::normal_distribution<double>()(random));
            }
            inputs.emplace_back(elements * sizeof(T), random() % 3 == 0 ? 0 : random() % 67);
        }
        std::vector<T> column(n);
        for (std::size_t i = 0; i < elements; ++i) {
            for (std::size_t r = 0; r < n; ++r) {
                const T value = random_element<T>(random);
                column[r] = value;
                std::memcpy(inputs[r].data() + i * sizeof(T), &value, sizeof(T));
            }
            expected.push_back(reduced<T>(op, column, factors));
        }
    }

    ReduceOp::Kind op;
    std::vector<double> factors;
    std::vector<Buffer> inputs;
    std::vector<T> expected;
};

template <class T>
::testing::AssertionResult holds(const Buffer& output, const Case<T>& what, std::size_t elements) {
    if (!output.guards_are_whole()) return ::testing::AssertionFailure() << "wrote outside";
    for (std::size_t i = 0; i < elements; ++i) {
        T value;
        std::memcpy(&value, output.data() + i * sizeof(T), sizeof(T));
        const T expected = what.expected[i];
        if (!same<T>(value, expected)) {
            return ::testing::AssertionFailure()
                   << "element " << i << " is " << +static_cast<Work<T>>(value) << " instead of "
                   << +static_cast<Work<T>>(expected);
        }
    }
    return ::testing::AssertionSuccess();
}

enum class Place { elsewhere, over_inputs };

// Reduces the first elements into `outputs` buffers: new ones, or the memory of as many inputs.
template <class T>
void expect_reduces(const Case<T>& what, std::size_t elements, std::size_t outputs, Store store,
                    Place place, std::mt19937& random) {
    const std::size_t n = what.inputs.size();
    const std::size_t bytes = elements * sizeof(T);
    std::vector<const std::byte*> from;
    for (const Buffer& input : what.inputs) from.push_back(input.data());
    std::vector<Buffer> buffers;
    std::vector<std::byte*> to;
    const std::size_t shift = random() % n;
    for (std::size_t k = 0; k < outputs; ++k) {
        buffers.emplace_back(bytes, random() % 3 == 0 ? 0 : random() % 67);
        to.push_back(buffers[k].data());
        if (place == Place::over_inputs) {
            const std::size_t r = (k + shift) % n;
            if (bytes > 0) std::memcpy(to[k], from[r], bytes);
            from[r] = to[k];
        }
    }
    backends::reduce(from, to, elements,
                     {.dtype = dtype_of<T>(), .op = what.op, .factors = what.factors}, store);
    for (const Buffer& buffer : buffers) {
        EXPECT_TRUE(holds(buffer, what, elements))
            << to_string(what.op) << " of " << n << " inputs, " << elements << " elements, "
            << outputs << " outputs" << (store == Store::streaming ? ", streaming" : "")
            << (place == Place::over_inputs ? ", in place" : "");
    }
}

template <class T>
void expect_reduces_everything(ReduceOp::Kind op, std::size_t n, std::mt19937& random) {
    const Case<T> what(op, n, 5003, random);
    for (const std::size_t elements : {0U, 1U, 7U, 31U, 64U, 1000U, 5003U}) {
        for (const Store store : {Store::cached, Store::streaming}) {
            for (const Place place : {Place::elsewhere, Place::over_inputs}) {
                expect_reduces(what, elements, 1, store, place, random);
                expect_reduces(what, elements, 1 + random() % n, store, place, random);
                if (elements <= 1000) expect_reduces(what, elements, n, store, place, random);
            }
        }
    }
}

TEST_P(ReduceKernels, GiveTheBitsOfTheModel) {
    std::mt19937 random(store_test::random_seed());
    for (int kind = ReduceOp::sum; kind <= ReduceOp::premul_sum; ++kind) {
        const auto op = static_cast<ReduceOp::Kind>(kind);
        if (!is_defined(op, dtype())) continue;
        for (const std::size_t n : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 9U, 16U, 33U}) {
            with_type(dtype(),
                      [&](auto type) { expect_reduces_everything<decltype(type)>(op, n, random); });
            if (HasFailure()) return;
        }
    }
}

TEST_P(ReduceKernels, AddAnyNumberOfInputsInTheTreesOrder) {
    std::mt19937 random(store_test::random_seed());
    for (const std::size_t n : {6U, 10U, 11U, 12U, 13U, 14U, 15U, 17U, 31U, 100U, 1000U}) {
        with_type(dtype(), [&](auto type) {
            constexpr std::size_t elements = 1003;
            const Case<decltype(type)> what(ReduceOp::sum, n, elements, random);
            expect_reduces(what, elements, 2, Store::cached, Place::elsewhere, random);
        });
    }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Kernels, DType>>& info) {
    const auto [kernels, dtype] = info.param;
    return std::string(kernels == Kernels::scalar ? "Scalar_" : "Avx2_") + to_string(dtype);
}

INSTANTIATE_TEST_SUITE_P(
    All, ReduceKernels,
    ::testing::Combine(::testing::Values(Kernels::scalar, Kernels::avx2),
                       ::testing::Values(DType::float32, DType::float64, DType::float16,
                                         DType::bfloat16, DType::int8, DType::int16, DType::int32,
                                         DType::int64, DType::uint8, DType::boolean)),
    name_of);

template <class T>
std::vector<T> reduce_all(const std::vector<std::vector<T>>& inputs, ReduceOp::Kind op) {
    std::vector<const std::byte*> from;
    for (const auto& input : inputs) {
        from.push_back(reinterpret_cast<const std::byte*>(input.data()));
    }
    std::vector<T> output(inputs[0].size());
    std::byte* const to = reinterpret_cast<std::byte*>(output.data());
    backends::reduce(from, {&to, 1}, output.size(), {.dtype = dtype_of<T>(), .op = op});
    return output;
}

// The model is a recursion; this is the order as one reads it in the manual.
TEST(Reduce, AddsInTheBalancedBinaryTree) {
    std::mt19937 random(17);
    std::uniform_real_distribution<float> values(-1e4F, 1e4F);
    std::vector<std::vector<float>> in(7, std::vector<float>(3000));
    for (auto& input : in) {
        for (float& value : input) value = values(random);
    }
    const auto sum = reduce_all(in, ReduceOp::sum);
    std::size_t other_order = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
        const float tree =
            ((in[0][i] + in[1][i]) + (in[2][i] + in[3][i])) + ((in[4][i] + in[5][i]) + in[6][i]);
        EXPECT_EQ(sum[i], tree) << i;
        float chain = in[0][i];
        for (std::size_t r = 1; r < 7; ++r) chain += in[r][i];
        other_order += chain != tree;
    }
    EXPECT_GT(other_order, 100U) << "the inputs cannot tell one order from another";
}

TEST(Reduce, IntegersWrapAroundAndAveragesRoundTowardsZero) {
    const std::int32_t most = std::numeric_limits<std::int32_t>::max();
    EXPECT_EQ((reduce_all<std::int32_t>({{most}, {1}}, ReduceOp::sum)[0]),
              std::numeric_limits<std::int32_t>::min());
    EXPECT_EQ((reduce_all<std::uint8_t>({{200}, {100}}, ReduceOp::sum)[0]), 44);
    EXPECT_EQ((reduce_all<std::int32_t>({{-5}, {-2}}, ReduceOp::avg)[0]), -3);
    const std::vector<std::vector<std::int8_t>> many(300, {1});  // more than an int8 can hold
    EXPECT_EQ(reduce_all(many, ReduceOp::avg)[0], 0);
}

TEST(Reduce, ANanOnAnyRankGivesNan) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const ReduceOp::Kind op : {ReduceOp::min, ReduceOp::max, ReduceOp::sum}) {
        EXPECT_TRUE(std::isnan(reduce_all<double>({{nan}, {1}, {2}}, op)[0]));
        EXPECT_TRUE(std::isnan(reduce_all<double>({{1}, {2}, {nan}}, op)[0]));
    }
}

TEST(Reduce, HalfTypesRoundOnce) {
    // 2048 + 1 is a tie in float16 and would stay 2048, twice.
    const float16 large(2048.0F);
    const float16 one(1.0F);
    EXPECT_EQ(static_cast<float>(reduce_all<float16>({{large}, {one}, {one}}, ReduceOp::sum)[0]),
              2050.0F);
}

class CopyPastTheCaches : public ::testing::TestWithParam<Kernels> {};

TEST_P(CopyPastTheCaches, MovesAnyBytes) {
    if (!backends::use_kernels(GetParam())) GTEST_SKIP() << "this processor cannot run them";
    std::mt19937 random(store_test::random_seed());
    for (std::size_t bytes = 0; bytes < 6000; bytes += bytes < 300 ? 1 : 517) {
        Buffer from(bytes, random() % 67);
        Buffer to(bytes, random() % 67);
        for (std::size_t i = 0; i < bytes; ++i) from.data()[i] = static_cast<std::byte>(random());
        backends::copy(to.data(), from.data(), bytes, Store::streaming);
        EXPECT_TRUE(std::equal(to.data(), to.data() + bytes, from.data())) << bytes;
        EXPECT_TRUE(to.guards_are_whole()) << bytes;
    }
    backends::copy(nullptr, nullptr, 0, Store::streaming);
    backends::use_kernels(Kernels::automatic);
}

INSTANTIATE_TEST_SUITE_P(All, CopyPastTheCaches, ::testing::Values(Kernels::scalar, Kernels::avx2));

// Also where the two begin at nearly the same place of a page, which the processor does badly.
TEST(Copy, ByTheProcessorMovesAnyBytes) {
    constexpr std::size_t page = 4096;
    std::mt19937 random(store_test::random_seed());
    std::vector<std::byte> from(5 * page);
    for (std::byte& byte : from) byte = static_cast<std::byte>(random());
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{2049}, 2 * page}) {
        for (std::size_t offset = 0; offset < page; offset += offset < 130 ? 1 : 509) {
            const std::size_t first = random() % page;
            std::vector<std::byte> to(5 * page);
            const std::size_t place = (first + offset) % page;
            backends::copy(&to[place], &from[first], bytes, Store::string);
            std::vector<std::byte> wanted(to.size());
            std::copy_n(&from[first], bytes, &wanted[place]);
            EXPECT_TRUE(to == wanted) << bytes << " bytes, " << offset << " apart";
        }
    }
    backends::copy(nullptr, nullptr, 0, Store::string);
}

TEST(Copy, MovesOverlappingBytesThroughTheCaches) {
    std::string text = "abcdef";
    backends::copy(text.data() + 1, text.data(), 5);
    EXPECT_EQ(text, "aabcde");
    backends::copy(nullptr, nullptr, 0);
}

}  // namespace
