// Moves between devices, with a conversion where the elements are before they move.
#include <ddp/tensor_functions.hpp>

#include "tensor/allocation.hpp"
#include "tensor/convert_elements.hpp"
#include "tensor/device/current_gpu.hpp"
#include "tensor/device/device_api.hpp"

#include <ddp/error.hpp>

#include <cstring>

namespace ddp {
namespace {

bool on_gpu(const TensorView& tensor) { return tensor.device.type == DeviceType::cuda; }

void synchronize(device::DeviceApi& api, int gpu) {
    const device::CurrentGpu current(api, gpu);
    api.synchronize(Stream{});
}

// The same dtype on both sides.
void move_elements(const TensorView& from, const TensorView& to) {
    if (!on_gpu(from) && !on_gpu(to)) {
        std::memmove(to.data, from.data, to.bytes());
        return;
    }
    device::DeviceApi& api = device::device_api();
    // The copy is ordered by the target's stream alone.
    if (on_gpu(from) && on_gpu(to)) synchronize(api, from.device.index);
    const device::CurrentGpu current(api, on_gpu(to) ? to.device.index : from.device.index);
    api.copy(to.data, from.data, to.bytes(), Stream{});
    api.synchronize(Stream{});
}

// On one device.
void convert_in_place(const TensorView& from, const TensorView& to) {
    if (!on_gpu(from)) {
        device::convert_elements(from, to);
        return;
    }
    device::DeviceApi& api = device::device_api();
    const device::CurrentGpu current(api, from.device.index);
    api.convert(from, to, Stream{});
    api.synchronize(Stream{});
}

}  // namespace

void copy_elements(const TensorView& from, const TensorView& to) {
    if (from.shape != to.shape) {
        throw UsageError("copy_elements: from shape " + to_string(from.shape) + " to shape " +
                         to_string(to.shape) + "; view() gives a tensor another shape");
    }
    if (from.numel() == 0) return;
    if (from.dtype == to.dtype) {
        move_elements(from, to);
    } else if (from.device == to.device || (!on_gpu(from) && !on_gpu(to))) {
        convert_in_place(from, to);
    } else {
        const Tensor converted = device::allocate(from.shape, to.dtype, from.device);
        convert_in_place(from, converted);
        move_elements(converted, to);
    }
}

}  // namespace ddp
