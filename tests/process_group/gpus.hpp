// A host of four GPUs for tests of groups: the stand-ins for the CUDA runtime and for NCCL. Made
// before main, in the test's own process and in each of its ranks.
#pragma once

#include "process_group/worlds.hpp"
#include "support/stand_in_gpus.hpp"
#include "support/stand_in_library.hpp"
#include "tensor/device/current_gpu.hpp"

#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

namespace ddp::testing {

using Gpus = StandInGpus;

inline Gpus& gpus() {
    static Gpus* const api = [] {
        ::setenv("DDP_NCCL_LIBRARY", stand_in_path().c_str(), 1);
        auto* const made = new Gpus(4);  // streams of the group may outlive static objects
        device::use_device_api(made);
        return made;
    }();
    return *api;
}

// Memory of a group's device, for as long as it lives.
template <class T>
class GpuTensor {
public:
    GpuTensor(const ProcessGroup& group, std::size_t count, T value)
        : device_(group.device()), memory_(gpus().allocate(std::max(count * sizeof(T), 1UL))) {
        values = {static_cast<T*>(memory_), count};
        std::fill(values.begin(), values.end(), value);
    }
    // On another GPU than the group's.
    GpuTensor(const Device& device, std::size_t count, T value)
        : device_(device), memory_(allocate_on(device, std::max(count * sizeof(T), 1UL))) {
        values = {static_cast<T*>(memory_), count};
        std::fill(values.begin(), values.end(), value);
    }
    ~GpuTensor() { gpus().free(memory_); }
    GpuTensor(const GpuTensor&) = delete;
    GpuTensor& operator=(const GpuTensor&) = delete;

    TensorView view() const {
        return {memory_, Shape{static_cast<std::int64_t>(values.size())}, dtype_of<T>(), device_};
    }
    std::span<T> values;

private:
    static void* allocate_on(const Device& device, std::size_t bytes) {
        const device::CurrentGpu current{gpus(), device.index};
        return gpus().allocate(bytes);
    }

    Device device_;
    void* memory_;
};

}  // namespace ddp::testing
