// What collectives of the serial model do to the memory of a GPU, or of what stands in for one.
#pragma once

#include "process_group/planned_work.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/process_group.hpp>
#include <ddp/stream.hpp>
#include <ddp/tensor_view.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <random>

namespace ddp::testing {

// Memory of the host, and as much of the group's GPU.
class GpuArena {
public:
    GpuArena(const Device& where, std::size_t bytes)
        : where_(where),
          host_(static_cast<std::byte*>(::operator new(bytes, alignment))),
          bytes_(bytes) {
        std::fill_n(host_, bytes, std::byte{});
        gpu_.reserve(where, bytes);
    }
    ~GpuArena() { ::operator delete(host_, alignment); }
    GpuArena(const GpuArena&) = delete;
    GpuArena& operator=(const GpuArena&) = delete;

    Arena host() const { return {{host_, bytes_}, {host_, bytes_}}; }
    TensorView view() const {
        return {gpu_.data(), {static_cast<std::int64_t>(bytes_)}, DType::uint8, where_};
    }
    // Where the GPU has what is at this place of the host; null stays null.
    void* on_gpu(const void* place) const {
        if (place == nullptr) return nullptr;
        return gpu_.data() + (static_cast<const std::byte*>(place) - host_);
    }
    void to_gpu(Stream stream) const { copy(gpu_.data(), host_, stream); }
    void to_host(Stream stream) const { copy(host_, gpu_.data(), stream); }

private:
    static constexpr std::align_val_t alignment{256};  // a GPU's

    void copy(std::byte* to, const std::byte* from, Stream stream) const {
        device::copy(where_, to, from, bytes_, stream);
        device::finish(where_, stream);
    }

    Device where_;
    std::byte* host_;
    std::size_t bytes_;
    device::Buffer gpu_;
};

// The collective's memory is the arena's.
inline Work start_on_gpu(ProcessGroup& group, const PlannedCollective& planned,
                         const GpuArena& arena, Stream stream = {}) {
    const auto there = [&](TensorView tensor) {
        tensor.data = arena.on_gpu(tensor.data);
        tensor.device = group.device();
        return tensor;
    };
    return start(group, planned.call(), there(planned.input()), there(planned.output()), stream);
}

// So many random ones; all ranks give the same seed.
inline void expect_collectives_of_the_model(ProcessGroup& group, unsigned seed, int count) {
    constexpr std::size_t max_elements = 2'000;
    std::mt19937 random(seed);
    const GpuArena arena(group.device(), 2 * largest_buffer(group.size(), max_elements));
    for (int i = 0; i < count; ++i) {
        const CollectivePlan plan = random_plan_of_nccl(random, group.size(), max_elements);
        const PlannedCollective planned(plan, group.rank(), arena.host());
        arena.to_gpu({});
        start_on_gpu(group, planned, arena).wait();
        arena.to_host({});
        EXPECT_EQ(planned.wrong(), "") << describe(plan);
    }
}

}  // namespace ddp::testing
