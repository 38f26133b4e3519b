#include "reducer/logical_sum.hpp"

#include "backends/reduction/reduce.hpp"
#include "backends/reduction/reduce_kernel_set.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <vector>

namespace ddp::reducer {
namespace {

std::vector<const std::byte*> inputs_of(const BucketMemory& bucket) {
    std::vector<const std::byte*> inputs;
    for (std::size_t l = 0; l + 1 < bucket.of_logical_ranks.size(); ++l) {
        inputs.push_back(bucket.of_logical_ranks[l].get());
    }
    inputs.push_back(static_cast<const std::byte*>(bucket.tensor.data()));
    return inputs;
}

void reduce_logical_ranks(const BucketMemory& bucket, ReduceOp::Kind op) {
    const std::vector<const std::byte*> inputs = inputs_of(bucket);
    const std::array outputs{static_cast<std::byte*>(bucket.tensor.data())};
    backends::reduce(inputs, outputs, bucket.tensor.numel(), {bucket.spec.dtype, op});
}

// Widened a block at a time; the blocks stay in the first-level cache.
template <class Half>
void sum_wide(const BucketMemory& bucket) {
    constexpr std::size_t block = 512;
    const std::vector<const std::byte*> inputs = inputs_of(bucket);
    std::vector<float> blocks(block * inputs.size());
    std::vector<const std::byte*> widened;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        widened.push_back(reinterpret_cast<const std::byte*>(&blocks[i * block]));
    }
    const auto to = bucket.wide.as<float>();
    for (std::size_t first = 0; first < to.size(); first += block) {
        const std::size_t count = std::min(block, to.size() - first);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            const auto* from = reinterpret_cast<const Half*>(inputs[i]) + first;
            for (std::size_t e = 0; e < count; ++e) {
                blocks[i * block + e] = static_cast<float>(from[e]);
            }
        }
        const std::array outputs{reinterpret_cast<std::byte*>(&to[first])};
        backends::reduce(widened, outputs, count, {DType::float32, ReduceOp::sum});
    }
}

template <class From, class To>
void divide_all(const TensorView& from, const TensorView& to, std::size_t divisor) {
    const auto input = from.as<From>();
    const auto output = to.as<To>();
    for (std::size_t i = 0; i < input.size(); ++i) {
        if constexpr (std::is_integral_v<From>) {
            // Of a type that holds the divisor too.
            using Wide = std::conditional_t<std::is_signed_v<From>, std::int64_t, std::uint64_t>;
            output[i] = static_cast<To>(static_cast<Wide>(input[i]) / static_cast<Wide>(divisor));
        } else if constexpr (std::is_same_v<From, double>) {
            output[i] = input[i] / static_cast<double>(divisor);
        } else {
            output[i] = static_cast<To>(static_cast<float>(input[i]) / static_cast<float>(divisor));
        }
    }
}

}  // namespace

std::string refuse_logical_ranks(std::size_t logical_ranks, std::size_t ranks) {
    if (logical_ranks / ranks > backends::max_inputs) {
        return "logical_ranks is " + std::to_string(logical_ranks) + ", more than " +
               std::to_string(backends::max_inputs) + " for each of " + std::to_string(ranks) +
               " ranks";
    }
    if (logical_ranks % ranks == 0 && std::has_single_bit(logical_ranks / ranks)) return {};
    return "logical_ranks is " + std::to_string(logical_ranks) + ", but the group has " +
           std::to_string(ranks) + " ranks; it must be 1, 2, 4, 8, ... times as many";
}

TensorView sum_logical_ranks(const BucketMemory& bucket) {
    if (bucket.spec.dtype == DType::float16) {
        sum_wide<float16>(bucket);
        return bucket.wide;
    }
    if (bucket.spec.dtype == DType::bfloat16) {
        sum_wide<bfloat16>(bucket);
        return bucket.wide;
    }
    reduce_logical_ranks(bucket, ReduceOp::sum);
    return bucket.tensor;
}

void average_logical_ranks(const BucketMemory& bucket) {
    reduce_logical_ranks(bucket, ReduceOp::avg);
}
void sum_logical_ranks_in_place(const BucketMemory& bucket) {
    reduce_logical_ranks(bucket, ReduceOp::sum);
}

void divide(const TensorView& from, const TensorView& to, std::size_t divisor) {
    if (from.dtype == DType::float32 && to.dtype == DType::float16) {
        return divide_all<float, float16>(from, to, divisor);
    }
    if (from.dtype == DType::float32 && to.dtype == DType::bfloat16) {
        return divide_all<float, bfloat16>(from, to, divisor);
    }
    switch (to.dtype) {
        case DType::float32:
            return divide_all<float, float>(from, to, divisor);
        case DType::float64:
            return divide_all<double, double>(from, to, divisor);
        case DType::int32:
            return divide_all<std::int32_t, std::int32_t>(from, to, divisor);
        case DType::int64:
            return divide_all<std::int64_t, std::int64_t>(from, to, divisor);
        case DType::uint8:
            return divide_all<std::uint8_t, std::uint8_t>(from, to, divisor);
        case DType::float16:
            return divide_all<float16, float16>(from, to, divisor);
        case DType::bfloat16:
            return divide_all<bfloat16, bfloat16>(from, to, divisor);
        case DType::int8:
            return divide_all<std::int8_t, std::int8_t>(from, to, divisor);
        case DType::int16:
            return divide_all<std::int16_t, std::int16_t>(from, to, divisor);
        case DType::boolean:
            return;  // have no average: parameter_check refuses them
    }
}

}  // namespace ddp::reducer
