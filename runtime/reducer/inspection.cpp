// What a Reducer tells of itself: its buckets, its times, and whether the ranks have drifted apart.
#include "process_group/process_group_impl.hpp"
#include "reducer/reducer_impl.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>

namespace ddp {
namespace {

using reducer::BucketSlice;

// Words are mixed so that no two changes cancel out easily; it only finds accidents.
std::uint64_t checksum(std::span<const std::byte> memory) {
    constexpr std::uint64_t prime = 0x9E3779B97F4A7C15;
    const std::byte* const data = memory.data();
    const std::size_t bytes = memory.size();
    std::uint64_t sum = bytes;
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, data + at, std::min(sizeof word, bytes - at));
        sum = std::rotl(sum ^ word, 29) * prime;
    }
    return sum;
}

std::uint64_t checksum(const TensorView& tensor) {
    if (tensor.device.type != DeviceType::cpu) return checksum(device::read(tensor));
    return checksum(std::span(static_cast<const std::byte*>(tensor.data), tensor.bytes()));
}

// Of two numbers from each rank. By rank.
std::vector<std::array<std::uint64_t, 2>> gather(std::array<std::uint64_t, 2> mine,
                                                 ProcessGroup& group) {
    std::array<std::int64_t, 2> words = std::bit_cast<std::array<std::int64_t, 2>>(mine);
    std::vector<std::int64_t> all(words.size() * static_cast<std::size_t>(group.size()));
    group.all_gather(words, all, Stream{}, CallSite{}).wait();
    std::vector<std::array<std::uint64_t, 2>> by_rank(all.size() / words.size());
    std::memcpy(by_rank.data(), all.data(), all.size() * sizeof all[0]);
    return by_rank;
}

[[noreturn]] void throw_other_launches(std::uint64_t step, std::size_t rank, std::uint64_t first,
                                       std::uint64_t other) {
    std::string counts;
    if (first != other) {
        counts = " (" + std::to_string(first) + " and " + std::to_string(other) + " of them)";
    }
    throw UsageError("reducer: until step " + std::to_string(step) + " rank 0 and rank " +
                     std::to_string(rank) + " have launched other operations on their GPUs" +
                     counts + ", or in another order; all ranks must call the same operations " +
                     "in the same order");
}

// NCCL sends no header, so the order of a GPU's operations is compared here. Another thread of a
// rank may have launched more by now: then the part that all have launched is.
void compare_launches(ProcessGroup& group, std::uint64_t step) {
    const auto& device = group.impl().device;
    if (!device) return;
    const backends::LaunchOrder mine = device->launch_order();
    const auto all = gather({mine.calls(), mine.digest()}, group);
    const auto calls_of = [](const auto& rank) { return rank[0]; };
    const std::uint64_t least = std::ranges::min(all, {}, calls_of)[0];
    auto digests = all;
    if (std::ranges::max(all, {}, calls_of)[0] != least) {
        const auto digest = mine.digest_after(least);
        digests = gather({digest ? 1U : 0U, digest.value_or(0)}, group);
    } else {
        for (auto& rank : digests) rank[0] = 1;
    }
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (digests[0][0] == 1 && digests[rank] == digests[0]) continue;
        throw_other_launches(step, rank, all[0][0], all[rank][0]);
    }
}

}  // namespace

// Only what must be equal: the gradients that are averages now, and the values.
void Reducer::Impl::compare_checksums() {
    if (options_.checksum_steps == 0 || group_.size() == 1 || join_ ||
        statistics_.step % options_.checksum_steps != 0) {
        return;
    }
    compare_launches(group_, statistics_.step);
    std::vector<std::int64_t> mine;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        const bool averaged = used_.empty() || used_[p] != 0;
        mine.push_back(std::bit_cast<std::int64_t>(checksum(parameters_[p].value)));
        mine.push_back(averaged ? std::bit_cast<std::int64_t>(checksum(parameters_[p].grad)) : 0);
    }
    const auto ranks = static_cast<std::size_t>(group_.size());
    std::vector<std::int64_t> all(mine.size() * ranks);
    group_.all_gather(mine, all, Stream{}, CallSite{}).wait();
    for (std::size_t i = 0; i < mine.size(); ++i) {
        for (std::size_t rank = 1; rank < ranks; ++rank) {
            if (all[rank * mine.size() + i] == all[i]) continue;
            throw UsageError("reducer: the ranks have drifted apart: after step " +
                             std::to_string(statistics_.step) + " the " +
                             (i % 2 == 0 ? "value" : "gradient") + " of " +
                             parameters_[i / 2].name + " on rank " + std::to_string(rank) +
                             " differs from rank 0's; was it changed on one rank alone, or a "
                             "gradient added after it was marked ready?");
        }
    }
}

std::string Reducer::Impl::describe() const {
    require_all_alive();
    std::string text;
    const auto buckets = memory_->buckets();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        text += "bucket " + std::to_string(b) + ": " + std::to_string(buckets[b].bytes()) +
                " bytes of " + to_string(buckets[b].spec.dtype) + ":";
        for (const BucketSlice& slice : buckets[b].spec.slices) {
            text += " " + parameters_[slice.parameter].name;
        }
        text += '\n';
    }
    return text;
}

void Reducer::Impl::measure(Clock::time_point backward_end, Clock::time_point done) {
    StepStatistics now{.step = statistics_.step + 1};
    const bool had_forward = forward_start_ != Clock::time_point{};
    if (had_forward) now.forward = backward_start_ - forward_start_;
    forward_start_ = {};
    now.backward = backward_end - backward_start_;
    now.exposed = done - backward_end;
    const auto buckets = memory_->buckets();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        ++now.buckets;
        if (b < sent_before_last_) ++now.buckets_before_last_gradient;
        now.bytes += buckets[b].bytes();
        if (progress_[b].sent.took) now.communication += *progress_[b].sent.took;
    }
    if (now.communication.count() > 0) {
        const auto share = static_cast<double>(now.exposed.count()) /
                           static_cast<double>(now.communication.count());
        now.overlap = std::clamp(1 - share, 0.0, 1.0);
    }
    statistics_ = now;
}

std::string to_json(const StepStatistics& statistics) {
    std::array<char, 512> text{};
    std::snprintf(text.data(), text.size(),
                  "{\"step\": %llu, \"forward_ns\": %lld, \"backward_ns\": %lld, "
                  "\"communication_ns\": %lld, \"exposed_ns\": %lld, \"overlap\": %.4f, "
                  "\"buckets\": %zu, \"buckets_before_last_gradient\": %zu, \"bytes\": %zu}",
                  static_cast<unsigned long long>(statistics.step),
                  static_cast<long long>(statistics.forward.count()),
                  static_cast<long long>(statistics.backward.count()),
                  static_cast<long long>(statistics.communication.count()),
                  static_cast<long long>(statistics.exposed.count()), statistics.overlap,
                  statistics.buckets, statistics.buckets_before_last_gradient, statistics.bytes);
    return text.data();
}

}  // namespace ddp
