#include "backends/shm/transfer/slot_stores.hpp"

#include <algorithm>
#include <bit>

namespace ddp::shm {
namespace {

using backends::Store;

// Of so many parts one goes the other way; among the first ones too.
constexpr std::uint32_t trial_every = 64;
constexpr std::uint32_t first_trial = 4;
// Less of it fits in the core's store buffer, and takes no longer than the clock.
constexpr std::size_t least_timed = 4096;
// What a part's reader waits longer for its first lines, where they come from memory.
constexpr double latency_ps = 400e3;
// An estimate is the least of late, for what comes between makes times longer, never shorter.
constexpr double growth = 1.25;

void copy(std::byte* slot, std::byte* also, const std::byte* from, std::size_t bytes, Store store) {
    if (also == nullptr || store == Store::streaming) {
        backends::copy(slot, from, bytes, store);
        if (also != nullptr) backends::copy(also, from, bytes);
        return;
    }
    // Two copies for one reading.
    std::byte* const outputs[] = {slot, also};
    backends::reduce({&from, 1}, outputs, bytes, {DType::uint8, ReduceOp::bit_or, {}});
}

std::size_t index_of(Store store) { return store == Store::streaming ? 1 : 0; }
std::size_t index_of(std::size_t call_bytes) {
    return static_cast<std::size_t>(std::bit_width(call_bytes));
}

}  // namespace

Store SlotStores::store_of(std::size_t call_bytes, std::size_t bytes) const {
    if (call_bytes >= tuning_.streaming_bytes) return Store::streaming;
    const auto [cached, streaming] = habits_[index_of(call_bytes)].ps_a_byte;
    if (!compares(call_bytes) || cached == 0 || streaming == 0) return Store::cached;
    const double latency = latency_ps / static_cast<double>(std::max<std::size_t>(bytes, 1));
    const double loss = static_cast<double>(tuning_.streaming_gain_ps) + latency;
    return cached - streaming > loss ? Store::streaming : Store::cached;
}

Store SlotStores::next_store(std::size_t call_bytes, std::size_t bytes) {
    const Store best = store_of(call_bytes, bytes);
    if (!compares(call_bytes)) return best;
    const bool is_trial = habits_[index_of(call_bytes)].parts++ % trial_every == first_trial;
    if (!is_trial) return best;
    return best == Store::cached ? Store::streaming : Store::cached;
}

void SlotStores::note(std::size_t call_bytes, Store store, std::size_t bytes, double ps) {
    double& estimate = habits_[index_of(call_bytes)].ps_a_byte[index_of(store)];
    const double ps_a_byte = ps / static_cast<double>(bytes);
    estimate = estimate > 0 ? std::min(ps_a_byte, estimate * growth) : ps_a_byte;
}

void SlotStores::put(std::size_t call_bytes, std::byte* slot, const std::byte* from,
                     std::size_t bytes, std::byte* also) {
    if (!compares(call_bytes) || bytes < least_timed) {
        return copy(slot, also, from, bytes, store_of(call_bytes, bytes));
    }
    using Clock = std::chrono::steady_clock;
    const Store store = next_store(call_bytes, bytes);
    const auto start = Clock::now();
    copy(slot, also, from, bytes, store);
    const std::chrono::duration<double, std::pico> time = Clock::now() - start;
    note(call_bytes, store, bytes, time.count());
}

}  // namespace ddp::shm
