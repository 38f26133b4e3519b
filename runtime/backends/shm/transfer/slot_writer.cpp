#include "backends/shm/transfer/slot_writer.hpp"

#include <algorithm>
#include <bit>

namespace ddp::shm {
namespace {

using backends::Store;

// One part of this many is written in the other mode, for the first time early.
constexpr std::uint32_t trial_interval = 64;
constexpr std::uint32_t first_trial = 4;
// Fewer bytes fit in the core's store buffer and take no longer than reading the clock.
constexpr std::size_t min_timed_bytes = 4096;
// How much longer a reader waits for the first lines of a part that come from memory.
constexpr double latency_ps = 400e3;
// An estimate is a recent minimum, since interruptions only make times longer: it grows by this
// factor with each time that is not less.
constexpr double growth = 1.25;

void copy(std::byte* slot, std::byte* also, const std::byte* from, std::size_t bytes, Store store) {
    if (also == nullptr || store == Store::streaming) {
        backends::copy(slot, from, bytes, store);
        if (also != nullptr) backends::copy(also, from, bytes);
        return;
    }
    // Reads the source once for both copies.
    std::byte* const outputs[] = {slot, also};
    backends::reduce({&from, 1}, outputs, bytes, {DType::uint8, ReduceOp::bit_or, {}});
}

std::size_t index_of(Store store) { return store == Store::streaming ? 1 : 0; }
std::size_t index_of(std::size_t call_bytes) {
    return static_cast<std::size_t>(std::bit_width(call_bytes));
}

}  // namespace

Store SlotWriter::best_store(std::size_t call_bytes, std::size_t bytes) const {
    const auto [cached, streaming] = stats_[index_of(call_bytes)].ps_per_byte;
    if (!compares() || cached == 0 || streaming == 0) return Store::cached;
    const double latency = latency_ps / static_cast<double>(std::max<std::size_t>(bytes, 1));
    const double loss = static_cast<double>(min_gain_ps_) + latency;
    return cached - streaming > loss ? Store::streaming : Store::cached;
}

Store SlotWriter::next_store(std::size_t call_bytes, std::size_t bytes) {
    const Store best = best_store(call_bytes, bytes);
    if (!compares()) return best;
    const bool is_trial = stats_[index_of(call_bytes)].parts++ % trial_interval == first_trial;
    if (!is_trial) return best;
    return best == Store::cached ? Store::streaming : Store::cached;
}

void SlotWriter::record(std::size_t call_bytes, Store store, std::size_t bytes, double ps) {
    double& estimate = stats_[index_of(call_bytes)].ps_per_byte[index_of(store)];
    const double ps_per_byte = ps / static_cast<double>(bytes);
    estimate = estimate > 0 ? std::min(ps_per_byte, estimate * growth) : ps_per_byte;
}

void SlotWriter::write(std::size_t call_bytes, std::byte* slot, const std::byte* from,
                       std::size_t bytes, std::byte* also) {
    const auto copy_by = [&](Store store) {
        if (store == Store::cached) store = store_through_caches(copying_, bytes);
        copy(slot, also, from, bytes, store);
    };
    if (!compares() || bytes < min_timed_bytes) return copy_by(best_store(call_bytes, bytes));
    using Clock = std::chrono::steady_clock;
    const Store store = next_store(call_bytes, bytes);
    const auto start = Clock::now();
    copy_by(store);
    const std::chrono::duration<double, std::pico> time = Clock::now() - start;
    record(call_bytes, store, bytes, time.count());
}

}  // namespace ddp::shm
