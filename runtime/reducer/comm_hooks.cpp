// The hooks that come with the library.
#include <ddp/comm_hook.hpp>
#include <ddp/half.hpp>

#include "reducer/bucket_sender.hpp"
#include "tensor/device/device_api.hpp"
#include "tensor/device/device_memory.hpp"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace ddp {
namespace {

BucketWork send_whole(const GradBucket& bucket, ProcessGroup& group, Stream stream) {
    return reducer::start_average(bucket.buffer, group, bucket.divisor, stream);
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
    return {std::move(work), [halves, wide](Stream) {
                for (std::size_t i = 0; i < wide.size(); ++i) {
                    wide[i] = static_cast<Wide>(static_cast<float>((*halves)[i]));
                }
            }};
}

// On a GPU each bucket has its memory for halves, which it keeps.
class GpuCompression {
public:
    explicit GpuCompression(DType half) : half_(half) {}

    BucketWork send(const GradBucket& bucket, ProcessGroup& group, Stream stream) {
        device::DeviceApi& api = device::device_api();
        const TensorView wide = bucket.buffer;
        std::byte* const memory =
            memory_[bucket.index].reserve(wide.device, wide.numel() * size_of(half_));
        const TensorView halves(memory, wide.shape, half_, wide.device);
        api.scale(wide, 1 / static_cast<double>(bucket.divisor), stream);
        api.convert(wide, halves, stream);
        return {group.all_reduce(halves, ReduceOp::sum, stream),
                [&api, halves, wide](Stream after) { api.convert(halves, wide, after); }};
    }

private:
    DType half_;
    std::map<std::size_t, device::Buffer> memory_;  // by bucket
};

template <class Half>
CommHook compress() {
    return [on_gpu = std::make_shared<GpuCompression>(dtype_of<Half>())](
               const GradBucket& bucket, ProcessGroup& group, Stream stream) {
        const DType dtype = bucket.buffer.dtype;
        if (dtype != DType::float32 && dtype != DType::float64) {
            return send_whole(bucket, group, stream);
        }
        if (bucket.buffer.device.type != DeviceType::cpu) {
            return on_gpu->send(bucket, group, stream);
        }
        return dtype == DType::float32 ? send_halves<Half, float>(bucket, group, stream)
                                       : send_halves<Half, double>(bucket, group, stream);
    };
}

}  // namespace

CommHook all_reduce_hook() { return send_whole; }
CommHook fp16_compress_hook() { return compress<float16>(); }
CommHook bf16_compress_hook() { return compress<bfloat16>(); }

}  // namespace ddp
