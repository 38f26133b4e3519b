// The source of all kernels, and which of them a job needs. Included by one source file for each
// kind of processor, after that file's Machine; gives it kernel_set.
#pragma once

#include "backends/reduction/reduce_blocks.hpp"

namespace ddp::backends {
namespace {

template <class Format>
void reduce_number(const Job& job) {
    switch (job.op) {
        case ReduceOp::sum:
            return Blocks<Format, Sum, Finishing::keep>(job).run();
        case ReduceOp::avg:
            return Blocks<Format, Sum, Finishing::average>(job).run();
        case ReduceOp::min:
            return Blocks<Format, Min, Finishing::keep>(job).run();
        case ReduceOp::max:
            return Blocks<Format, Max, Finishing::keep>(job).run();
        case ReduceOp::product:
            return Blocks<Format, Product, Finishing::keep>(job).run();
        case ReduceOp::premul_sum:
            if constexpr (std::is_floating_point_v<typename Format::Work>) {
                return Blocks<Format, Sum, Finishing::premultiply>(job).run();
            }
            return;
        case ReduceOp::bit_and:
        case ReduceOp::bit_or:
        case ReduceOp::bit_xor:
            return;
    }
}

void reduce_bytes(const Job& job) {
    using Bytes = Plain<std::uint8_t>;
    switch (job.op) {
        case ReduceOp::bit_and:
            return Blocks<Bytes, And, Finishing::keep>(job).run();
        case ReduceOp::bit_or:
            return Blocks<Bytes, Or, Finishing::keep>(job).run();
        case ReduceOp::bit_xor:
            return Blocks<Bytes, Xor, Finishing::keep>(job).run();
        case ReduceOp::sum:
        case ReduceOp::avg:
        case ReduceOp::min:
        case ReduceOp::max:
        case ReduceOp::product:
        case ReduceOp::premul_sum:
            return reduce_number<Bytes>(job);
    }
}

// `run` with the format of that type, booleans being bytes.
template <class Run>
void with_format(DType dtype, const Run& run) {
    switch (dtype) {
        case DType::float32:
            return run(Plain<float>{});
        case DType::float64:
            return run(Plain<double>{});
        case DType::float16:
            return run(Half{});
        case DType::bfloat16:
            return run(BFloat16{});
        case DType::int8:
            return run(Plain<std::int8_t>{});
        case DType::int16:
            return run(Plain<std::int16_t>{});
        case DType::int32:
            return run(Plain<std::int32_t>{});
        case DType::int64:
            return run(Plain<std::int64_t>{});
        case DType::uint8:
        case DType::boolean:
            return run(Plain<std::uint8_t>{});
    }
}

void reduce_job(const Job& job) {
    with_format(job.dtype, [&]<class Format>(Format) {
        if constexpr (std::is_same_v<Format, Plain<std::uint8_t>>) {
            reduce_bytes(job);
        } else {
            reduce_number<Format>(job);
        }
    });
}

template <class Format>
void widen_number(const Conversion& job) {
    using Sums = Plain<typename Format::Work>;
    const std::byte* const from[] = {job.from};
    if (job.factor == 1) {
        combine<Format, Sums, Sum, 1>(from, 0, job.to, job.elements, Keep{});
    } else {
        combine<Format, Sums, Sum, 1>(from, 0, job.to, job.elements, Multiply{job.factor});
    }
}

void widen_job(const Conversion& job) {
    if (job.dtype == DType::float16) {
        widen_number<Half>(job);
    } else {
        widen_number<BFloat16>(job);
    }
}

template <class Format>
void finish_number(const Conversion& job) {
    using Sums = Plain<typename Format::Work>;
    const std::byte* const from[] = {job.from};
    if (job.divisor == 1) {
        combine<Sums, Format, Sum, 1>(from, 0, job.to, job.elements, Keep{});
    } else {
        const Divide<std::size_t> by{job.divisor};
        combine<Sums, Format, Sum, 1>(from, 0, job.to, job.elements, by);
    }
}

void finish_job(const Conversion& job) {
    with_format(job.dtype, [&]<class Format>(Format) { finish_number<Format>(job); });
}

constexpr KernelSet kernel_set{.reduce = reduce_job,
                               .widen = widen_job,
                               .finish_sum = finish_job,
                               .stream = stream_all,
                               .copy = copy_all,
                               .prefetch_for_write = prefetch_all_for_write};

}  // namespace
}  // namespace ddp::backends
