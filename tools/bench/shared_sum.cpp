#include "bench/shared_sum.hpp"

#include "bench/bare_loops.hpp"
#include "bench/host_case.hpp"
#include "bench/method.hpp"
#include "bench/shared_pages.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace ddp::bench {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t ahead = 256;

// Adds up a line of each and writes the sum to all of them, line by line.
using Line = std::array<float, line_bytes / sizeof(float)>;
template <std::size_t few>
[[gnu::always_inline]] inline void sum_lines(std::byte* const* ranks, std::size_t many,
                                             std::size_t bytes) {
    const std::size_t count = few > 0 ? few : many;
    for (std::size_t i = 0; i < bytes; i += line_bytes) {
        Line sum{};
        for (std::size_t rank = 0; rank < count; ++rank) {
            __builtin_prefetch(ranks[rank] + i + ahead, 1);
            const auto& line = *reinterpret_cast<const Line*>(ranks[rank] + i);
            for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += line[k];
        }
        for (std::size_t rank = 0; rank < count; ++rank) {
            *reinterpret_cast<Line*>(ranks[rank] + i) = sum;
        }
    }
}
[[gnu::target("avx2,prfchw"), gnu::optimize("O3")]] void sum_avx2(std::byte* const* ranks,
                                                                  std::size_t count,
                                                                  std::size_t bytes) {
    if (count == 8) return sum_lines<8>(ranks, count, bytes);
    if (count == 4) return sum_lines<4>(ranks, count, bytes);
    if (count == 2) return sum_lines<2>(ranks, count, bytes);
    sum_lines<0>(ranks, count, bytes);
}
[[gnu::optimize("O3")]] void sum_plain(std::byte* const* ranks, std::size_t count,
                                       std::size_t bytes) {
    sum_lines<0>(ranks, count, bytes);
}

class SharedSum : public HostCase {
public:
    SharedSum(ProcessGroup& group, std::size_t bytes)
        : HostCase(group),
          ranks_(static_cast<std::size_t>(group.size())),
          rank_(static_cast<std::size_t>(group.rank())),
          bytes_(bytes),
          shared_(group, ranks_ * (page_bytes + stride())),
          at_(ranks_),
          crowded_(is_crowded(group)) {}

    void rewrite(int iteration) {
        auto* const mine = reinterpret_cast<float*>(memory_of(rank_));
        std::fill_n(mine, bytes_ / sizeof(float), static_cast<float>(iteration));
    }
    void call() {
        meet();
        const std::size_t lines = bytes_ / line_bytes;
        const std::size_t first = lines * rank_ / ranks_ * line_bytes;
        const std::size_t end = lines * (rank_ + 1) / ranks_ * line_bytes;
        for (std::size_t peer = 0; peer < ranks_; ++peer) at_[peer] = memory_of(peer) + first;
        const auto run = __builtin_cpu_supports("avx2") != 0 ? sum_avx2 : sum_plain;
        run(at_.data(), ranks_, end - first);
        meet();
    }

private:
    // As the library's: not a power of two apart, or they would meet in the banks of the memory.
    std::size_t stride() const { return (bytes_ / page_bytes / 16 * 16 + 16 + 7) * page_bytes; }
    std::byte* memory_of(std::size_t rank) const {
        return shared_.data() + ranks_ * page_bytes + rank * stride();
    }
    std::atomic<std::uint32_t>& flag(std::size_t rank) const {
        return flag_at(shared_.data() + rank * page_bytes);
    }
    void meet() {
        flag(rank_).store(++turn_, std::memory_order_release);
        for (std::size_t peer = 0; peer < ranks_; ++peer) wait_for(flag(peer), turn_, crowded_);
    }

    std::size_t ranks_;
    std::size_t rank_;
    std::size_t bytes_;
    SharedPages shared_;
    std::vector<std::byte*> at_;  // this rank's share in each rank's memory
    bool crowded_;
    std::uint32_t turn_ = 0;
};

}  // namespace

double measure_shared_sum_us(ProcessGroup& group, std::size_t bytes) {
    SharedSum sum(group, bytes);
    return measure(sum, bytes, {.iterations = 0, .warmup = 0, .budget_s = 0.1}).time_us;
}

}  // namespace ddp::bench
