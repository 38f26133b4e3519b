#include "backends/shm/region/shared_region.hpp"

#include "base/futex.hpp"
#include "base/random.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <new>

namespace ddp::shm {
namespace {

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// All channels together take about this much; a slot is at least two lines and at most 64 KiB.
constexpr std::size_t channels_budget = std::size_t{2} << 20;

std::size_t channel_slot_bytes_of(std::size_t ranks) {
    const std::size_t fair = channels_budget / (ranks * ranks * channel_slots);
    return std::clamp(fair / cache_line * cache_line, 2 * cache_line, std::size_t{64} << 10);
}

// So that the lines of a chunk have left its reader's caches before they are written again.
std::size_t channel_slot_room_of(std::size_t ranks) {
    constexpr std::size_t crowd = 16;  // all channels together stay small
    return channel_slot_bytes_of(ranks) * (ranks <= crowd ? 8 : 1);
}

std::size_t index_of(int number) { return static_cast<std::size_t>(number); }

template <class T>
T& at(std::byte* place) {
    return *std::launder(reinterpret_cast<T*>(place));
}

}  // namespace

SharedRegion::Layout::Layout(std::size_t ranks_, std::size_t slot_bytes_)
    : ranks(ranks_),
      slot_bytes(slot_bytes_),
      channel_slot_bytes(channel_slot_bytes_of(ranks_)),
      channel_slot_room(channel_slot_room_of(ranks_)),
      parts_bytes(2 * ranks_ * sizeof(std::uint64_t)) {
    blocks = round_up(sizeof(RegionHeader), alignof(RankBlock));
    parts = blocks + ranks * sizeof(RankBlock);
    channels = round_up(parts + ranks * 2 * parts_bytes, alignof(Channel));
    channel_slots = round_up(channels + ranks * ranks * sizeof(Channel), page_bytes);
    const std::size_t ring_bytes = shm::channel_slots * channel_slot_room;
    slots = round_up(channel_slots + ranks * ranks * ring_bytes, page_bytes);
    end = slots + (ranks + 1) * slots_per_rank * slot_bytes;
}

SharedRegion::SharedRegion(std::shared_ptr<SharedMemory> memory, const Layout& layout,
                           const Tuning& tuning)
    : memory_(std::move(memory)),
      layout_(layout),
      tuning_(tuning),
      swaps_slots_(layout.ranks == 2 && tuning.coloring.swaps != 0),
      slots_(memory_->data() + layout.slots),
      blocks_(&at<RankBlock>(memory_->data() + layout_.blocks)),
      own_(std::make_unique<std::atomic<bool>[]>(layout_.ranks)),
      token_(base::random_bits()) {}

std::shared_ptr<SharedRegion> SharedRegion::create(int ranks, const Tuning& tuning) {
    if (ranks > 1) require_watching(HostKernel::real());  // valgrind, too, has no pidfd_open
    const Layout layout(index_of(ranks), tuning.staged.chunk_bytes);
    const std::string what = "shm: " + std::to_string(layout.end) + " bytes of shared memory for " +
                             std::to_string(ranks) + " ranks";
    auto memory = SharedMemory::create(layout.end, what, layout.channel_slots);
    auto* header = new (memory->data()) RegionHeader{};
    header->ranks = index_of(ranks);
    header->tuning = tuning;
    return std::shared_ptr<SharedRegion>(new SharedRegion(std::move(memory), layout, tuning));
}

// The header is read here, once: what peers write there later changes nothing in this process.
std::shared_ptr<SharedRegion> SharedRegion::open(const std::string& address, int ranks,
                                                 const base::Deadline& deadline,
                                                 const HostKernel& kernel) {
    require_watching(kernel);
    auto memory = SharedMemory::open(address, deadline, 0, kernel);
    const std::string refusal = "shm: the memory at '" + address + "' is not a region of " +
                                std::to_string(ranks) + " ranks: ";
    if (memory->bytes() < sizeof(RegionHeader)) throw UsageError(refusal + "it is too small");
    const auto& header = at<RegionHeader>(memory->data());
    const std::uint64_t their_ranks = header.ranks;
    const Tuning tuning = header.tuning;
    if (their_ranks != index_of(ranks)) {
        throw UsageError(refusal + "it is one of " + std::to_string(their_ranks));
    }
    if (const char* const number = find_impossible(tuning, ranks); number != nullptr) {
        throw UsageError(refusal + "its " + number + " cannot be");
    }
    const Layout layout(index_of(ranks), tuning.staged.chunk_bytes);
    if (round_up(layout.end, page_bytes) != memory->bytes()) {
        throw UsageError(refusal + "it has " + std::to_string(memory->bytes()) + " bytes, not " +
                         std::to_string(round_up(layout.end, page_bytes)));
    }
    return std::shared_ptr<SharedRegion>(new SharedRegion(std::move(memory), layout, tuning));
}

RegionHeader& SharedRegion::header() const { return at<RegionHeader>(memory_->data()); }

std::atomic<std::uint32_t>& SharedRegion::abort_word() const { return header().abort_word; }

void SharedRegion::introduce(int rank, std::uint32_t requested_backend) const {
    own_[index_of(rank)].store(true, std::memory_order_relaxed);
    RankBlock& mine = block(rank);
    mine.requested_backend = requested_backend;
    mine.token_address = reinterpret_cast<std::uintptr_t>(&token_);
    mine.token = token_;
    mine.pid.store(::getpid(), std::memory_order_release);
    base::futex_wake_all(mine.pid, base::FutexScope::shared);
}

bool SharedRegion::is_in_this_process(int rank) const {
    return own_[index_of(rank)].load(std::memory_order_relaxed);
}

bool SharedRegion::is_introduced(int rank, std::chrono::nanoseconds at_most) const {
    std::atomic<std::int32_t>& pid = block(rank).pid;
    if (pid.load(std::memory_order_acquire) != 0) return true;
    base::futex_wait(pid, 0, base::FutexScope::shared, at_most);
    return pid.load(std::memory_order_acquire) != 0;
}

std::uint64_t* SharedRegion::parts(int rank, std::uint64_t parity) const {
    const std::size_t index = 2 * index_of(rank) + parity % 2;
    return &at<std::uint64_t>(memory_->data() + layout_.parts + index * layout_.parts_bytes);
}

Channel& SharedRegion::channel(int from, int to) const {
    const std::size_t index = index_of(from) * layout_.ranks + index_of(to);
    return at<Channel>(memory_->data() + layout_.channels + index * sizeof(Channel));
}

std::byte* SharedRegion::channel_slot(int from, int to, std::uint64_t chunk) const {
    const std::size_t pair = index_of(from) * layout_.ranks + index_of(to);
    const std::size_t index = pair * channel_slots + chunk % channel_slots;
    return memory_->data() + layout_.channel_slots + index * layout_.channel_slot_room;
}

void SharedRegion::reserve_slots(int rank) const {
    const std::size_t bytes = slots_per_rank * layout_.slot_bytes;
    const std::size_t first = swaps_slots() ? 0 : index_of(rank);
    const std::size_t last = swaps_slots() ? layout_.ranks - 1 : first;
    memory_->reserve(layout_.slots + first * bytes, (last - first + 1) * bytes);
    memory_->reserve(layout_.slots + layout_.ranks * bytes, bytes);
}

void SharedRegion::reserve_channels(int from) const {
    const std::size_t bytes = layout_.ranks * shm::channel_slots * layout_.channel_slot_room;
    memory_->reserve(layout_.channel_slots + index_of(from) * bytes, bytes);
}

std::byte* SharedRegion::result(std::uint64_t chunk) const {
    return slot_at(layout_.ranks, chunk % (swaps_slots() ? 2 : slots_per_rank));
}

}  // namespace ddp::shm
