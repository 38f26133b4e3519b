#include "reducer/agreement.hpp"

#include "base/log.hpp"
#include "process_group/group_access.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

namespace ddp::reducer {
namespace {

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
    auto words = std::bit_cast<std::array<std::int64_t, 2>>(mine);
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
    const auto mine = process_group::GroupAccess(group).gpu_launch_order();
    if (!mine) return;
    const auto all = gather({mine->calls(), mine->digest()}, group);
    const auto calls_of = [](const auto& rank) { return rank[0]; };
    const std::uint64_t least = std::ranges::min(all, {}, calls_of)[0];
    auto digests = all;
    if (std::ranges::max(all, {}, calls_of)[0] != least) {
        const auto digest = mine->digest_after(least);
        digests = gather({digest ? 1U : 0U, digest.value_or(0)}, group);
    } else {
        for (auto& rank : digests) rank[0] = 1;
    }
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (digests[0][0] == 1 && digests[rank] == digests[0]) continue;
        throw_other_launches(step, rank, all[0][0], all[rank][0]);
    }
}

// Collective: of the first rank that made one, and who else did.
[[noreturn]] void throw_mistakes(const std::string& mistake, const std::string& when,
                                 ProcessGroup& group) {
    const std::vector<std::string> texts = gather_texts(mistake, group);
    std::string message;
    std::string others;
    std::optional<int> culprit;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (texts[rank].empty()) continue;
        if (message.empty()) {
            culprit = process_group::GroupAccess(group).job_rank(static_cast<int>(rank));
            message = "reducer: " + when + "on rank " + std::to_string(rank) + ", " + texts[rank];
        } else {
            others += (others.empty() ? "" : ", ") + std::to_string(rank);
        }
    }
    if (!others.empty()) message += " (likewise on rank " + others + ")";
    throw UsageError(message, culprit);
}

}  // namespace

std::vector<std::string> gather_texts(const std::string& mine, ProcessGroup& group) {
    const auto ranks = static_cast<std::size_t>(group.size());
    std::vector<std::int64_t> sizes(ranks);
    std::vector<std::int64_t> size{static_cast<std::int64_t>(mine.size())};
    group.all_gather(size, sizes, Stream{}, CallSite{}).wait();
    const auto longest = static_cast<std::size_t>(*std::ranges::max_element(sizes));
    std::vector<std::uint8_t> padded(longest);
    std::ranges::copy(mine, padded.begin());
    std::vector<std::uint8_t> all(longest * ranks);
    group.all_gather(padded, all, Stream{}, CallSite{}).wait();
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * longest);
        texts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(sizes[rank]));
    }
    return texts;
}

void throw_if_any(const std::string& mistake, ProcessGroup& group) {
    int wrong = mistake.empty() ? 0 : 1;
    if (group.size() > 1) wrong = group.all_reduce(wrong, ReduceOp::sum, CallSite{});
    if (wrong > 0) throw_mistakes(mistake, {}, group);
}

void LateMistakes::tell_and_hear(const std::string& mistake, ProcessGroup& group) {
    if (group.size() == 1) return throw_if_any(mistake, group);
    Told& now = told_[now_];
    now_ = 1 - now_;
    Told& before = told_[now_];
    if (!mistake.empty()) {
        base::log_error("reducer", mistake + "; all ranks throw this in the next backward");
    }
    now.mistake = mistake;
    now.wrong = {mistake.empty() ? 0 : 1};
    now.work = group.all_reduce(now.wrong, ReduceOp::sum, Stream{}, CallSite{});
    before.work.wait();
    const std::string own = std::exchange(before.mistake, {});
    if (std::exchange(before.wrong[0], 0) > 0) {
        throw_mistakes(own, "in the backward before this one, ", group);
    }
}

void require_equal_models(std::span<const Parameter> parameters,
                          std::span<const std::uint8_t> averaged, std::uint64_t step,
                          ProcessGroup& group) {
    compare_launches(group, step);
    std::vector<std::int64_t> mine;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        const bool compared = averaged.empty() || averaged[p] != 0;
        mine.push_back(std::bit_cast<std::int64_t>(checksum(parameters[p].value)));
        mine.push_back(compared ? std::bit_cast<std::int64_t>(checksum(parameters[p].grad)) : 0);
    }
    const auto ranks = static_cast<std::size_t>(group.size());
    std::vector<std::int64_t> all(mine.size() * ranks);
    group.all_gather(mine, all, Stream{}, CallSite{}).wait();
    for (std::size_t i = 0; i < mine.size(); ++i) {
        for (std::size_t rank = 1; rank < ranks; ++rank) {
            if (all[rank * mine.size() + i] == all[i]) continue;
            throw UsageError("reducer: the ranks have drifted apart: after step " +
                             std::to_string(step) + " the " + (i % 2 == 0 ? "value" : "gradient") +
                             " of " + parameters[i / 2].name + " on rank " + std::to_string(rank) +
                             " differs from rank 0's; was it changed on one rank alone, or a "
                             "gradient added after it was marked ready?");
        }
    }
}

}  // namespace ddp::reducer
