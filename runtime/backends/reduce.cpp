#include "backends/reduce.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace ddp::backends {
namespace {

// Elements reduced at a time: the intermediate sums of a block stay in the first-level cache.
constexpr std::size_t block_elements = 1024;
constexpr std::size_t max_depth = 12;  // of the tree: 4,096 ranks, more than any host runs

struct Sum {
    template <class T>
    T operator()(T a, T b) const {
        return static_cast<T>(a + b);
    }
};
struct Product {
    template <class T>
    T operator()(T a, T b) const {
        return static_cast<T>(a * b);
    }
};
// The first comparison fails for a NaN in b, the second keeps a NaN in a.
struct Min {
    template <class T>
    T operator()(T a, T b) const {
        return a < b || a != a ? a : b;
    }
};
struct Max {
    template <class T>
    T operator()(T a, T b) const {
        return a > b || a != a ? a : b;
    }
};

// Integers wrap around, as in every other library; signed overflow in C++ would be undefined.
template <class T>
struct Wrapping {
    using Type = T;
};
template <>
struct Wrapping<std::int32_t> {
    using Type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
    using Type = std::uint64_t;
};

template <class T, class Op>
class Tree {
public:
    Tree(std::span<const std::byte* const> inputs, std::size_t first, std::size_t count)
        : inputs_(inputs), first_(first), count_(count) {}

    // Reduces the inputs low <= r < high into `out`.
    void run(std::size_t low, std::size_t high, T* out, std::size_t depth) {
        if (high - low == 1) {
            std::memcpy(out, input(low), count_ * sizeof(T));
        } else if (high - low == 2) {
            combine(input(low), input(low + 1), out);
        } else {
            const std::size_t middle = low + std::bit_floor(high - low - 1);
            T* const right = scratch_[depth].data();
            run(low, middle, out, depth + 1);
            run(middle, high, right, depth + 1);
            combine(out, right, out);
        }
    }

private:
    const T* input(std::size_t rank) const {
        return reinterpret_cast<const T*>(inputs_[rank]) + first_;
    }
    void combine(const T* a, const T* b, T* out) const {
        for (std::size_t i = 0; i < count_; ++i) out[i] = Op{}(a[i], b[i]);
    }

    std::span<const std::byte* const> inputs_;
    std::size_t first_;
    std::size_t count_;
    std::array<std::array<T, block_elements>, max_depth> scratch_;
};

template <class T, class Op, class Finish>
void reduce_blocks(std::span<const std::byte* const> inputs, std::byte* output,
                   std::size_t elements, Finish finish) {
    std::array<T, block_elements> block;
    for (std::size_t first = 0; first < elements; first += block_elements) {
        const std::size_t count = std::min(block_elements, elements - first);
        Tree<T, Op>(inputs, first, count).run(0, inputs.size(), block.data(), 0);
        for (std::size_t i = 0; i < count; ++i) block[i] = finish(block[i]);
        std::memcpy(output + first * sizeof(T), block.data(), count * sizeof(T));
    }
}

template <class T>
void reduce_typed(std::span<const std::byte* const> inputs, std::byte* output, std::size_t elements,
                  ReduceOp op) {
    using Wrapped = typename Wrapping<T>::Type;
    const auto keep = [](auto value) { return value; };
    switch (op.kind) {
        case ReduceOp::sum:
            return reduce_blocks<Wrapped, Sum>(inputs, output, elements, keep);
        case ReduceOp::avg: {
            const auto divide = [n = static_cast<T>(inputs.size())](Wrapped sum) {
                return static_cast<Wrapped>(static_cast<T>(sum) / n);
            };
            return reduce_blocks<Wrapped, Sum>(inputs, output, elements, divide);
        }
        case ReduceOp::min:
            return reduce_blocks<T, Min>(inputs, output, elements, keep);
        case ReduceOp::max:
            return reduce_blocks<T, Max>(inputs, output, elements, keep);
        case ReduceOp::product:
            return reduce_blocks<Wrapped, Product>(inputs, output, elements, keep);
        case ReduceOp::bit_and:
        case ReduceOp::bit_or:
        case ReduceOp::bit_xor:
        case ReduceOp::premul_sum:
            return;
    }
}

}  // namespace

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
            std::size_t elements, const Reduction& how, Store) {
    std::byte* const output = outputs[0];
    const ReduceOp op = how.op;
    switch (how.dtype) {
        case DType::float32:
            reduce_typed<float>(inputs, output, elements, op);
            break;
        case DType::float64:
            reduce_typed<double>(inputs, output, elements, op);
            break;
        case DType::int32:
            reduce_typed<std::int32_t>(inputs, output, elements, op);
            break;
        case DType::int64:
            reduce_typed<std::int64_t>(inputs, output, elements, op);
            break;
        case DType::uint8:
            reduce_typed<std::uint8_t>(inputs, output, elements, op);
            break;
        case DType::float16:
        case DType::bfloat16:
        case DType::int8:
        case DType::int16:
        case DType::boolean:
            break;
    }
    for (std::byte* const other : outputs.subspan(1)) {
        backends::copy(other, output, elements * size_of(how.dtype));
    }
}

void copy(void* to, const void* from, std::size_t bytes, Store) {
    if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

bool use_kernels(Kernels kernels) noexcept { return kernels == Kernels::automatic; }

}  // namespace ddp::backends
