// What HostDeviceApi puts on streams, and what it checks before.
#include "support/host_device_api.hpp"
#include "support/host_kernels.hpp"

#include <ddp/error.hpp>

#include <cstring>
#include <thread>
#include <utility>

namespace ddp::testing {

void HostDeviceApi::launch(const StreamPtr& on, std::function<void()> work) {
    on->put([work = std::move(work), delay = launch_delay_.load()] {
        if (delay.count() > 0) std::this_thread::sleep_for(delay);
        work();
    });
}

void HostDeviceApi::require_memory(const char* call, int device, const void* memory,
                                   std::size_t bytes) {
    if (bytes == 0 || owns(device, memory, bytes)) return;
    fail(call, device, Code::illegal_address,
         "illegal access to " + std::to_string(bytes) + " bytes on " +
             to_string(device_of(memory)) + " or past the end of an allocation");
}

void HostDeviceApi::copy(void* to, const void* from, std::size_t bytes, Stream handle) {
    const StreamPtr on = stream("copy", handle);
    if (bytes == 0) return;
    bool ordinary = false;
    bool elsewhere = false;
    bool here = false;
    for (const void* side : {static_cast<const void*>(to), from}) {
        const auto owner = memory_.owner(side, bytes);
        ordinary |= !owner;
        here |= owner == on->device;
        elsewhere |= owner && *owner != on->device && *owner != HostMemory::pinned;
    }
    if (elsewhere && !here) {
        fail("copy", on->device, Code::illegal_address,
             "neither side is memory of the stream's device");
    }
    launch(on, [to, from, bytes] { std::memmove(to, from, bytes); });
    if (ordinary) on->synchronize();
}

void HostDeviceApi::set_zero(void* memory, std::size_t bytes, Stream handle) {
    const StreamPtr on = stream("set_zero", handle);
    require_memory("set_zero", on->device, memory, bytes);
    if (bytes > 0) launch(on, [memory, bytes] { std::memset(memory, 0, bytes); });
}

void HostDeviceApi::require_floats(const char* call, int device, const TensorView& view) {
    if (!is_floating_point(view.dtype)) {
        fail(call, device, Code::invalid_value,
             std::string(to_string(view.dtype)) + " is not supported");
    }
    require_memory(call, device, view.data, view.bytes());
}

void HostDeviceApi::require_items(const char* call, int device,
                                  std::span<const device::PackItem> items,
                                  const TensorView& packed) {
    require_memory(call, device, packed.data, packed.bytes());
    for (const device::PackItem& item : items) {
        require_memory(call, device, item.data, item.elements * size_of(packed.dtype));
        if (item.offset > packed.numel() || item.elements > packed.numel() - item.offset) {
            fail(call, device, Code::invalid_value, "an item lies outside of the packed tensor");
        }
    }
}

void HostDeviceApi::scale(const TensorView& values, double factor, Stream handle) {
    const StreamPtr on = stream("scale", handle);
    require_floats("scale", on->device, values);
    launch(on, [values, factor] { host_kernels::scale(values, factor); });
}

void HostDeviceApi::pack(std::span<const device::PackItem> items, const TensorView& packed,
                         double factor, Stream handle) {
    const StreamPtr on = stream("pack", handle);
    require_items("pack", on->device, items, packed);
    if (factor != 1) require_floats("pack", on->device, packed);
    launch(on, [kept = std::vector(items.begin(), items.end()), packed, factor] {
        host_kernels::pack(kept, packed, factor);
    });
}

void HostDeviceApi::unpack(const TensorView& packed, std::span<const device::PackItem> items,
                           Stream handle) {
    const StreamPtr on = stream("unpack", handle);
    require_items("unpack", on->device, items, packed);
    launch(on, [kept = std::vector(items.begin(), items.end()), packed] {
        host_kernels::unpack(packed, kept);
    });
}

void HostDeviceApi::pack_widened(std::span<const device::PackItem> items, DType dtype,
                                 const TensorView& packed, double factor, Stream handle) {
    const StreamPtr on = stream("pack_widened", handle);
    require_halves("pack_widened", on->device, items, dtype, packed);
    launch(on, [kept = std::vector(items.begin(), items.end()), dtype, packed, factor] {
        host_kernels::pack_widened(kept, dtype, packed, factor);
    });
}

void HostDeviceApi::unpack_rounded(const TensorView& packed,
                                   std::span<const device::PackItem> items, DType dtype,
                                   Stream handle) {
    const StreamPtr on = stream("unpack_rounded", handle);
    require_halves("unpack_rounded", on->device, items, dtype, packed);
    launch(on, [kept = std::vector(items.begin(), items.end()), dtype, packed] {
        host_kernels::unpack_rounded(packed, kept, dtype);
    });
}

void HostDeviceApi::require_halves(const char* call, int device,
                                   std::span<const device::PackItem> items, DType dtype,
                                   const TensorView& packed) {
    const bool is_half = dtype == DType::float16 || dtype == DType::bfloat16;
    if (!is_half || packed.dtype != DType::float32) {
        fail(call, device, Code::invalid_value, "takes float16 or bfloat16 in float32");
    }
    const TensorView halves(packed.data, packed.shape, dtype, packed.device);
    require_items(call, device, items, halves);
    require_memory(call, device, packed.data, packed.bytes());
}

void HostDeviceApi::convert(const TensorView& from, const TensorView& to, Stream handle) {
    const StreamPtr on = stream("convert", handle);
    require_memory("convert", on->device, from.data, from.bytes());
    require_memory("convert", on->device, to.data, to.bytes());
    if (from.numel() != to.numel()) {
        fail("convert", on->device, Code::invalid_value, "not the same number of elements");
    }
    launch(on, [from, to] { host_kernels::convert(from, to); });
}

void HostDeviceApi::add(std::span<const void* const> memories, const TensorView& sum,
                        Stream handle) {
    const StreamPtr on = stream("add", handle);
    for (const void* const memory : memories) {
        require_memory("add", on->device, memory, sum.bytes());
    }
    require_memory("add", on->device, sum.data, sum.bytes());
    if (memories.empty() || memories.size() > device::most_added || sum.dtype == DType::boolean) {
        fail("add", on->device, Code::invalid_value, "these are not added");
    }
    launch(on, [kept = std::vector(memories.begin(), memories.end()), sum] {
        host_kernels::add(kept, sum);
    });
}

}  // namespace ddp::testing
