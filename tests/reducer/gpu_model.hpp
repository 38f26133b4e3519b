// A model whose parameters lie on a group's GPU and whose backward only sets gradients, on any
// stream: for tests of the reducer that see late work. Through the device API alone, so that it is
// the same on a real GPU and on the host's.
#pragma once

#include "tensor/device/device_api.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp::testing {

// A stream for as long as it lives.
class GpuStream {
public:
    GpuStream() : handle_(device::device_api().make_stream(device::Priority::normal)) {}
    ~GpuStream() { device::device_api().destroy_stream(handle_); }
    GpuStream(const GpuStream&) = delete;
    GpuStream& operator=(const GpuStream&) = delete;
    operator Stream() const { return handle_; }  // NOLINT: it is one

private:
    CUstream_st* handle_;
};

class GpuModel {
public:
    GpuModel(const ProcessGroup& group, const std::vector<std::size_t>& sizes,
             DType dtype = DType::float32)
        : where_(group.device()) {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const TensorView value = allocate(sizes[i], dtype), grad = allocate(sizes[i], dtype);
            parameters_.push_back({"layer" + std::to_string(i), value, grad});
            if (dtype == DType::float32) set_value(i, static_cast<float>(i));
            device::set_zero(where_, grad.data, grad.bytes(), {});
        }
        device::finish_all(where_);
    }
    ~GpuModel() { device::finish_all(where_); }
    GpuModel(const GpuModel&) = delete;
    GpuModel& operator=(const GpuModel&) = delete;

    std::span<Parameter> parameters() { return parameters_; }

    // The gradient becomes `amount`, by work on the stream that has not ended when this returns.
    void set_gradient(std::size_t parameter, float amount, Stream stream) {
        const TensorView& grad = parameters_[parameter].grad;
        sources_.push_back(std::make_unique<device::Buffer>());
        void* const source = sources_.back()->reserve(where_, grad.bytes());
        const std::vector<float> host(grad.numel(), amount);
        device::copy(where_, source, host.data(), grad.bytes(), copies_);
        device::finish(where_, copies_);
        device::copy(where_, grad.data, source, grad.bytes(), stream);
    }
    void set_value(std::size_t parameter, float amount) {
        const TensorView& value = parameters_[parameter].value;
        const std::vector<float> host(value.numel(), amount);
        device::copy(where_, value.data, host.data(), value.bytes(), {});
    }
    // After the work on this stream alone.
    std::vector<float> gradient(std::size_t parameter, Stream stream) {
        return read(parameters_[parameter].grad, stream);
    }
    std::vector<float> value(std::size_t parameter) {
        device::finish_all(where_);
        return read(parameters_[parameter].value, {});
    }

private:
    TensorView allocate(std::size_t elements, DType dtype) {
        memory_.push_back(std::make_unique<device::Buffer>());
        void* const memory = memory_.back()->reserve(where_, elements * size_of(dtype));
        return {memory, {static_cast<std::int64_t>(elements)}, dtype, where_};
    }
    std::vector<float> read(const TensorView& tensor, Stream stream) {
        std::vector<float> host(tensor.numel());
        device::copy(where_, host.data(), tensor.data, tensor.bytes(), stream);
        device::finish(where_, stream);
        return host;
    }

    Device where_;
    GpuStream copies_;
    std::vector<std::unique_ptr<device::Buffer>> memory_;
    std::vector<std::unique_ptr<device::Buffer>> sources_;
    std::vector<Parameter> parameters_;
};

inline bool all_are(const std::vector<float>& values, float expected) {
    return std::ranges::all_of(values, [&](float value) { return value == expected; });
}

}  // namespace ddp::testing
