// The hooks that come with the library.
#include <ddp/comm_hook.hpp>
#include <ddp/half.hpp>

#include "reducer/logical_sum.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace ddp {
namespace {

BucketWork send_whole(const GradBucket& bucket, ProcessGroup& group, Stream stream) {
    if (bucket.divisor == static_cast<std::size_t>(group.size())) {
        return {group.all_reduce(bucket.buffer, ReduceOp::avg, stream), {}};
    }
    return {group.all_reduce(bucket.buffer, ReduceOp::sum, stream),
            [buffer = bucket.buffer, divisor = bucket.divisor] {
                reducer::divide(buffer, buffer, divisor);
            }};
}

template <class Half, class Wide>
BucketWork send_halves(const GradBucket& bucket, ProcessGroup& group, Stream stream) {
    const auto wide = bucket.buffer.as<Wide>();
    auto halves = std::make_shared<std::vector<Half>>(wide.size());
    const auto divisor = static_cast<float>(bucket.divisor);
    for (std::size_t i = 0; i < wide.size(); ++i) {
        (*halves)[i] = Half(static_cast<float>(wide[i]) / divisor);
    }
    Work work = group.all_reduce(*halves, ReduceOp::sum, stream);
    return {std::move(work), [halves, wide] {
                for (std::size_t i = 0; i < wide.size(); ++i) {
                    wide[i] = static_cast<Wide>(static_cast<float>((*halves)[i]));
                }
            }};
}

template <class Half>
BucketWork compress(const GradBucket& bucket, ProcessGroup& group, Stream stream) {
    if (bucket.buffer.dtype == DType::float32) {
        return send_halves<Half, float>(bucket, group, stream);
    }
    if (bucket.buffer.dtype == DType::float64) {
        return send_halves<Half, double>(bucket, group, stream);
    }
    return send_whole(bucket, group, stream);
}

}  // namespace

CommHook all_reduce_hook() { return send_whole; }
CommHook fp16_compress_hook() { return compress<float16>; }
CommHook bf16_compress_hook() { return compress<bfloat16>; }

}  // namespace ddp
