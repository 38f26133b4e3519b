#include "bench/floor.hpp"

#include "bench/bare_loops.hpp"
#include "bench/host_case.hpp"
#include "bench/method.hpp"
#include "bench/shared_pages.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

namespace ddp::bench {
namespace {

constexpr std::size_t head_bytes = std::size_t{64} << 20;

enum class Loop : std::uint8_t { sum, copy };

[[gnu::target("avx2"), gnu::optimize("O3")]] void add_avx2(float* __restrict a, float* __restrict b,
                                                           std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) a[i] = b[i] = a[i] + b[i];
}
[[gnu::optimize("O3")]] void add_plain(float* __restrict a, float* __restrict b, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) a[i] = b[i] = a[i] + b[i];
}

// All ranks at work on private memory.
class TrafficCase : public HostCase {
public:
    TrafficCase(ProcessGroup& group, Loop loop, std::size_t traffic)
        : HostCase(group),
          loop_(loop),
          count_(elements(traffic)),
          memory_(2 * count_ + between),
          a_(memory_.data()),
          b_(a_ + count_ + between) {}
    void rewrite(int) {}
    void call() {
        if (loop_ == Loop::copy) {
            std::memcpy(b_, a_, count_ * sizeof(float));
        } else if (__builtin_cpu_supports("avx2") != 0) {
            add_avx2(a_, b_, count_);
        } else {
            add_plain(a_, b_, count_);
        }
        // The loops' results are used as far as the compiler knows.
        asm volatile("" : : "r"(a_), "r"(b_) : "memory");
        ends_.push_back(now_us());
    }
    // The time of an iteration ends for each rank when the last one's traffic has moved: ranks that
    // take turns on a core would else count only their own turn.
    void average(std::span<double> times) {
        const std::vector<double> own(ends_.end() - static_cast<std::ptrdiff_t>(times.size()),
                                      ends_.end());
        std::vector<double> last = own;
        group_.all_reduce(std::span(last), ReduceOp::max).wait();
        for (std::size_t i = 0; i < times.size(); ++i) times[i] += last[i] - own[i];
        HostCase::average(times);
    }

private:
    // Of the clock that all processes of a host have in common.
    static double now_us() {
        using Clock = std::chrono::steady_clock;
        return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
    }
    std::size_t elements(std::size_t traffic) const {
        const std::size_t streams = loop_ == Loop::sum ? 4 : 2;
        const std::size_t ranks = static_cast<std::size_t>(group_.size());
        return (traffic / (streams * line_bytes * ranks) + 1) * (line_bytes / sizeof(float));
    }

    // Seven pages and a line: streams a power of two apart would be in other rows of the same banks
    // of the memory, and go at a third of its rate or less.
    static constexpr std::size_t between = (7 * 4096 + line_bytes) / sizeof(float);

    Loop loop_;
    std::size_t count_;
    std::vector<float> memory_;
    float* a_;
    float* b_;
    std::vector<double> ends_;
};

double measure_traffic_us(ProcessGroup& group, Loop loop, std::size_t traffic) {
    TrafficCase traffic_case(group, loop, traffic);
    return measure(traffic_case, traffic, {.iterations = 0, .warmup = 0, .budget_s = 0.1}).time_us;
}

struct Traffic {
    Loop loop;
    std::size_t bytes;
};

Traffic traffic_of(Kind kind, std::size_t bytes, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    switch (kind) {
        case Kind::all_reduce:
            return {Loop::sum, 2 * n * bytes};
        case Kind::reduce:
        case Kind::reduce_scatter:
            return {Loop::sum, (n + 1) * bytes};
        case Kind::broadcast:
            return {Loop::copy, n * bytes};
        case Kind::all_gather:
            return {Loop::copy, (n + 1) * bytes};
        case Kind::gather:
        case Kind::scatter:
            return {Loop::copy, 2 * bytes};
        case Kind::all_to_all:
        case Kind::send_recv:
            return {Loop::copy, 2 * n * bytes};
        case Kind::barrier:
            break;
    }
    return {Loop::copy, 0};
}

// Ranks 0 and 1 pass one word back and forth; a hand-over is half of a round.
double measure_hand_over_us(ProcessGroup& group) {
    if (group.size() < 2) return 0;
    SharedPages page(group, sizeof(std::atomic<std::uint32_t>));
    auto& word = flag_at(page.data());
    const bool crowded = is_crowded(group);
    constexpr std::uint32_t rounds = 500;
    std::vector<double> batches(21);
    std::uint32_t turn = 0;
    for (double& batch : batches) {
        group.barrier().wait();
        if (group.rank() > 1) continue;
        const auto start = std::chrono::steady_clock::now();
        for (std::uint32_t i = 0; i < rounds; ++i, turn += 2) {
            if (group.rank() == 0) {
                word.store(turn + 1, std::memory_order_release);
                wait_for(word, turn + 2, crowded);
            } else {
                wait_for(word, turn + 1, crowded);
                word.store(turn + 2, std::memory_order_release);
            }
        }
        const std::chrono::duration<double, std::micro> time =
            std::chrono::steady_clock::now() - start;
        batch = time.count() / (2 * rounds);
    }
    // The best: it is a floor.
    double best = *std::min_element(batches.begin(), batches.end());
    group.broadcast(std::span<double>{&best, 1}).wait();
    return best;
}

double gigabytes_per_second(std::size_t bytes, double us) {
    return static_cast<double>(bytes) / us / 1e3;
}

}  // namespace

Floor::Floor(ProcessGroup& group) : group_(group) {
    if (group.local_size() != group.size()) {
        throw UsageError("--floor: the ranks must be on one host");
    }
    const std::size_t traffic = 2 * head_bytes * static_cast<std::size_t>(group.size());
    hand_over_us_ = measure_hand_over_us(group);
    sum_gbs_ = gigabytes_per_second(traffic, measure_traffic_us(group, Loop::sum, traffic));
    copy_gbs_ = gigabytes_per_second(traffic, measure_traffic_us(group, Loop::copy, traffic));
}

double Floor::measure_us(Kind kind, std::size_t bytes) {
    const Traffic traffic = traffic_of(kind, bytes, group_.size());
    if (traffic.bytes == 0) return hand_over_us_;
    return std::max(hand_over_us_, measure_traffic_us(group_, traffic.loop, traffic.bytes));
}

std::string Floor::describe() const {
    std::array<char, 256> text{};
    std::snprintf(text.data(), text.size(),
                  "floor: a=b=a+b %.1f GB/s, copy %.1f GB/s (read + written, all ranks at once, "
                  "%zu MiB a rank); cache line hand-over %.0f ns",
                  sum_gbs_, copy_gbs_, 2 * head_bytes >> 20, 1e3 * hand_over_us_);
    return text.data();
}

}  // namespace ddp::bench
