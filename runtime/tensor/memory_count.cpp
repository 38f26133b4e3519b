// Two atomic numbers a device. Invariant: what is added when memory is allocated is taken off when
// it is freed, by whichever thread; the peak never misses a sum that there was.
#include "tensor/memory_count.hpp"

#include <ddp/memory.hpp>

#include <array>
#include <atomic>
#include <utility>

namespace ddp {

namespace {

struct Count {
    std::atomic<std::size_t> now = 0;
    std::atomic<std::size_t> peak = 0;
};

constexpr std::size_t most_devices = 64;  // of a type; the last number stands for more
std::array<std::array<Count, most_devices>, 2> counts;

Count& count_of(const Device& device) {
    const auto index = device.index < 0 ? 0 : static_cast<std::size_t>(device.index);
    auto& of_type = counts[device.type == DeviceType::cpu ? 0 : 1];
    return of_type[index < most_devices ? index : most_devices - 1];
}

void raise(std::atomic<std::size_t>& peak, std::size_t now) {
    std::size_t seen = peak.load();
    while (seen < now && !peak.compare_exchange_weak(seen, now)) {
    }
}

}  // namespace

std::shared_ptr<void> device::counted(std::shared_ptr<void> memory, std::size_t bytes,
                                      const Device& device) {
    Count& count = count_of(device);
    void* const address = memory.get();
    std::shared_ptr<void> owner(address,
                                [memory = std::move(memory), bytes, &count](void*) mutable {
                                    memory.reset();
                                    count.now -= bytes;
                                });
    raise(count.peak, count.now += bytes);
    return owner;
}

std::size_t memory_allocated(const Device& device) { return count_of(device).now; }
std::size_t max_memory_allocated(const Device& device) { return count_of(device).peak; }
void reset_peak_memory_stats(const Device& device) {
    Count& count = count_of(device);
    count.peak = 0;
    raise(count.peak, count.now);
}

}  // namespace ddp
