#include "bench/floor.hpp"

#include "bench/method.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <thread>
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

// All ranks at work on private memory, as bench/method.hpp measures a library.
class HostCase {
public:
    HostCase(ProcessGroup& group, Loop loop, std::size_t traffic)
        : group_(group), loop_(loop), a_(elements(traffic)), b_(elements(traffic)) {}
    void rewrite(int) {}
    void barrier() { group_.barrier().wait(); }
    void call() {
        if (loop_ == Loop::copy) {
            std::memcpy(b_.data(), a_.data(), a_.size() * sizeof(float));
        } else if (__builtin_cpu_supports("avx2") != 0) {
            add_avx2(a_.data(), b_.data(), a_.size());
        } else {
            add_plain(a_.data(), b_.data(), a_.size());
        }
        // The loops' results are used as far as the compiler knows.
        asm volatile("" : : "r"(a_.data()), "r"(b_.data()) : "memory");
    }
    int agree(int number) {
        group_.broadcast(std::span<int>{&number, 1}).wait();
        return number;
    }
    void average(std::span<double> values) { group_.all_reduce(values, ReduceOp::avg).wait(); }

private:
    std::size_t elements(std::size_t traffic) const {
        const std::size_t streams = loop_ == Loop::sum ? 4 : 2;
        return traffic / (streams * sizeof(float) * static_cast<std::size_t>(group_.size())) + 1;
    }

    ProcessGroup& group_;
    Loop loop_;
    std::vector<float> a_;
    std::vector<float> b_;
};

double measure_traffic_us(ProcessGroup& group, Loop loop, std::size_t traffic) {
    HostCase host_case(group, loop, traffic);
    return measure(host_case, traffic, {.iterations = 0, .warmup = 0, .budget_s = 0.1}).time_us;
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

// A page that all ranks of this host map: rank 0's memory file, opened by its descriptor's path,
// so that nothing with a name is left behind.
class SharedPage {
public:
    explicit SharedPage(ProcessGroup& group) {
        std::array<std::int64_t, 2> owner{};  // pid, descriptor
        int fd = -1;
        if (group.rank() == 0) {
            fd = ::memfd_create("ddp-bench", MFD_CLOEXEC);
            if (fd >= 0 && ::ftruncate(fd, size) != 0) fd = -1;
            owner = {::getpid(), fd};
        }
        group.broadcast(owner).wait();
        if (group.rank() != 0) {
            const std::string path =
                "/proc/" + std::to_string(owner[0]) + "/fd/" + std::to_string(owner[1]);
            fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        }
        void* const memory =
            fd < 0 ? MAP_FAILED : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        const int error = errno;
        const bool all_have_it = group.all_reduce(int{memory != MAP_FAILED}, ReduceOp::min) != 0;
        if (fd >= 0) ::close(fd);
        if (memory != MAP_FAILED) memory_ = memory;
        if (!all_have_it) throw SystemError("--floor: cannot share a page between ranks", error);
    }
    ~SharedPage() {
        if (memory_ != nullptr) ::munmap(memory_, size);
    }
    SharedPage(const SharedPage&) = delete;
    SharedPage& operator=(const SharedPage&) = delete;

    std::atomic<std::uint32_t>& word() {
        return *static_cast<std::atomic<std::uint32_t>*>(memory_);
    }

private:
    static constexpr std::size_t size = 4096;
    void* memory_ = nullptr;
};

void wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t value, bool crowded) {
    for (int spins = 0; word.load(std::memory_order_acquire) != value; ++spins) {
        if (crowded && spins % 64 == 63) ::sched_yield();
    }
}

// Ranks 0 and 1 pass one word back and forth; a hand-over is half of a round.
double measure_hand_over_us(ProcessGroup& group) {
    if (group.size() < 2) return 0;
    SharedPage page(group);
    const bool crowded = static_cast<unsigned>(group.size()) > std::thread::hardware_concurrency();
    constexpr std::uint32_t rounds = 500;
    std::vector<double> batches(21);
    std::uint32_t turn = 0;
    for (double& batch : batches) {
        group.barrier().wait();
        if (group.rank() > 1) continue;
        const auto start = std::chrono::steady_clock::now();
        for (std::uint32_t i = 0; i < rounds; ++i, turn += 2) {
            if (group.rank() == 0) {
                page.word().store(turn + 1, std::memory_order_release);
                wait_for(page.word(), turn + 2, crowded);
            } else {
                wait_for(page.word(), turn + 1, crowded);
                page.word().store(turn + 2, std::memory_order_release);
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
