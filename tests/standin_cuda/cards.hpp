// The device API of a build with CUDA over the stand-in runtime, for tests of what is above it. All
// it does is call the built-in one, and be another object: ddp looks for a driver's files before it
// asks the built-in one.
#pragma once

#include "standin_cuda/stand_in.hpp"
#include "tensor/device/device_api.hpp"

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

namespace ddp::standin_cuda {

class Cards final : public device::DeviceApi {
public:
    explicit Cards(int devices = 1) { set_devices(devices); }

    // From now on there is no driver; the calls fail as CUDA's do then.
    void set_reason(const std::string&) { set_driver_version(0); }
    void set_launch_delay(std::chrono::microseconds delay) {
        standin_cuda::set_launch_delay(delay);
    }
    void set_memory(std::size_t bytes) { standin_cuda::set_memory(bytes); }
    std::size_t allocated() const { return standin_cuda::allocated(); }

    device::Probe probe() const noexcept override { return cuda_.probe(); }
    std::string describe(int device) override { return cuda_.describe(device); }
    int architecture(int device) override { return cuda_.architecture(device); }
    std::string why_unfit(int device) override { return cuda_.why_unfit(device); }
    bool has_context(int device) override { return cuda_.has_context(device); }
    int current() override { return cuda_.current(); }
    void use(int device) override { cuda_.use(device); }
    Device device_of(const void* pointer) override { return cuda_.device_of(pointer); }

    void allow_peer_access(int device, int peer) override { cuda_.allow_peer_access(device, peer); }
    void* allocate(std::size_t bytes) override { return cuda_.allocate(bytes); }
    void free(void* memory) noexcept override { cuda_.free(memory); }
    void* allocate_pinned(std::size_t bytes) override { return cuda_.allocate_pinned(bytes); }
    void free_pinned(void* memory) noexcept override { cuda_.free_pinned(memory); }
    void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
        cuda_.copy(to, from, bytes, stream);
    }
    void set_zero(void* memory, std::size_t bytes, Stream stream) override {
        cuda_.set_zero(memory, bytes, stream);
    }

    CUstream_st* make_stream(device::Priority priority) override {
        return cuda_.make_stream(priority);
    }
    void destroy_stream(CUstream_st* stream) noexcept override { cuda_.destroy_stream(stream); }
    bool is_done(Stream stream) override { return cuda_.is_done(stream); }
    void synchronize(Stream stream) override { cuda_.synchronize(stream); }
    void synchronize_device() override { cuda_.synchronize_device(); }
    CUevent_st* make_event() override { return cuda_.make_event(); }
    CUevent_st* make_timed_event() override { return cuda_.make_timed_event(); }
    std::chrono::nanoseconds time_between(CUevent_st* first, CUevent_st* second) override {
        return cuda_.time_between(first, second);
    }
    void destroy_event(CUevent_st* event) noexcept override { cuda_.destroy_event(event); }
    bool is_captured(Stream stream) override { return cuda_.is_captured(stream); }
    void record(CUevent_st* event, Stream stream) override { cuda_.record(event, stream); }
    bool is_done(CUevent_st* event) override { return cuda_.is_done(event); }
    void wait(Stream stream, CUevent_st* event) override { cuda_.wait(stream, event); }

    void load_kernels() override { cuda_.load_kernels(); }
    void scale(const TensorView& values, double factor, Stream stream) override {
        cuda_.scale(values, factor, stream);
    }
    void pack(std::span<const device::PackItem> items, const TensorView& packed, double factor,
              Stream stream) override {
        cuda_.pack(items, packed, factor, stream);
    }
    void unpack(const TensorView& packed, std::span<const device::PackItem> items,
                Stream stream) override {
        cuda_.unpack(packed, items, stream);
    }
    void pack_widened(std::span<const device::PackItem> items, DType dtype,
                      const TensorView& packed, double factor, Stream stream) override {
        cuda_.pack_widened(items, dtype, packed, factor, stream);
    }
    void unpack_rounded(const TensorView& packed, std::span<const device::PackItem> items,
                        DType dtype, Stream stream) override {
        cuda_.unpack_rounded(packed, items, dtype, stream);
    }
    void convert(const TensorView& from, const TensorView& to, Stream stream) override {
        cuda_.convert(from, to, stream);
    }
    void add(std::span<const void* const> memories, const TensorView& sum, Stream stream) override {
        cuda_.add(memories, sum, stream);
    }

private:
    device::DeviceApi& cuda_ = device::built_in_device_api();
};

// For as long as the process lives: operations and threads of an NCCL group outlive the group, and a
// thread of one that has ended may begin after main has returned.
inline Cards& lasting_cards(int devices) {
    static Cards* const only = new Cards;
    set_devices(devices);
    return *only;
}

}  // namespace ddp::standin_cuda
