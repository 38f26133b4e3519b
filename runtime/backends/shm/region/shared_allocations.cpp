#include "backends/shm/region/shared_allocations.hpp"

#include <ddp/error.hpp>

#include <map>
#include <mutex>

namespace ddp::shm {

struct SharedAllocations::Registry {
    struct Entry {
        std::shared_ptr<SharedMemory> memory;
        std::size_t stride;
        bool is_held = true;  // by this rank: then peers cannot make it unmap by their count
        std::unique_ptr<AdoptedPages> adopted = nullptr;
    };
    std::mutex mutex;
    std::map<std::uint32_t, Entry> entries;  // by id
    std::uint32_t ranks = 0;

    // Under the mutex. Unmaps allocations that all ranks have released.
    void prune() {
        std::erase_if(entries, [this](const auto& entry) {
            return !entry.second.is_held &&
                   entry.second.memory->released().load(std::memory_order_acquire) == ranks;
        });
    }
    void release(std::uint32_t id) {
        const std::lock_guard lock(mutex);
        Entry& entry = entries.at(id);
        entry.adopted.reset();
        entry.is_held = false;
        entry.memory->released().fetch_add(1, std::memory_order_acq_rel);
        prune();
    }
};

SharedAllocations::SharedAllocations(int rank, int ranks)
    : rank_(rank), registry_(std::make_shared<Registry>()) {
    registry_->ranks = static_cast<std::uint32_t>(ranks);
}
SharedAllocations::~SharedAllocations() = default;

std::shared_ptr<void> SharedAllocations::add(std::shared_ptr<SharedMemory> memory,
                                             std::size_t stride) {
    const std::uint32_t id = ++last_id_;
    void* const own = own_piece(*memory, stride);
    {
        const std::lock_guard lock(registry_->mutex);
        registry_->prune();
        registry_->entries.emplace(id, Registry::Entry{std::move(memory), stride});
    }
    // Not under the mutex: without memory for it, it releases at once.
    return {own, [registry = registry_, id](void*) { registry->release(id); }};
}

std::shared_ptr<void> SharedAllocations::adopt(std::shared_ptr<SharedMemory> memory,
                                               std::size_t stride, std::span<std::byte> own,
                                               const std::string& what) {
    std::byte* const piece = own_piece(*memory, stride);
    std::shared_ptr<void> held = add(std::move(memory), stride);
    auto pages = std::make_unique<AdoptedPages>(own, piece, what);
    const std::lock_guard lock(registry_->mutex);
    registry_->entries.at(last_id_).adopted = std::move(pages);
    return held;
}

SharedAllocations::Place SharedAllocations::locate(const void* data, std::size_t bytes) const {
    const std::lock_guard lock(registry_->mutex);
    registry_->prune();
    const auto first = reinterpret_cast<std::uintptr_t>(data);
    for (const auto& [id, entry] : registry_->entries) {
        std::byte* const piece = own_piece(*entry.memory, entry.stride);
        const auto own = reinterpret_cast<std::uintptr_t>(piece);
        std::size_t offset = first - own;
        if (entry.adopted) {
            if (!entry.adopted->contains(data, bytes)) continue;
            offset = entry.adopted->offset_of(data);
        } else if (first < own || offset > entry.stride || bytes > entry.stride - offset) {
            continue;
        }
        return {{id, offset}, piece + offset, entry.adopted.get()};
    }
    return {};
}

std::byte* SharedAllocations::address(int rank, const BufferLocation& location,
                                      const Extent& extent) const {
    const std::lock_guard lock(registry_->mutex);
    const auto found = registry_->entries.find(location.allocation);
    if (found == registry_->entries.end()) {
        throw Error("shm: rank " + std::to_string(rank) + " announced an unknown allocation");
    }
    const std::size_t stride = found->second.stride;
    const std::uint64_t offset = location.offset;  // announced: read once
    const bool fits = offset <= stride && extent.first <= stride - offset &&
                      extent.bytes <= stride - offset - extent.first;
    if (!fits) {
        throw Error("shm: rank " + std::to_string(rank) +
                    " announced a place outside of its piece of an allocation");
    }
    return found->second.memory->data() + static_cast<std::size_t>(rank) * stride + offset +
           extent.first;
}

}  // namespace ddp::shm
