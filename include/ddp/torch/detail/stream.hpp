// The stream that torch's operators run on now, for collectives on their results. ddp::torch
// defines DDP_TORCH_HAS_CUDA where torch was built with CUDA: only then are there headers for it.
// Not for users.
#pragma once

#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>

#ifdef DDP_TORCH_HAS_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace ddp::libtorch::detail {

inline Stream current_stream(Device device) {
#ifdef DDP_TORCH_HAS_CUDA
    if (device.type == DeviceType::cuda) {
        return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device.index))
            .stream();
    }
#endif
    static_cast<void>(device);
    return {};
}

}  // namespace ddp::libtorch::detail
