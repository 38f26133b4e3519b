#include "bench/two_copies.hpp"

#include "bench/bare_loops.hpp"
#include "bench/host_case.hpp"
#include "bench/method.hpp"
#include "bench/shared_pages.hpp"

#include <ddp/error.hpp>

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace ddp::bench {
namespace {

constexpr std::size_t page_bytes = 4096;
// What stays in a first-level cache while it is added up.
constexpr std::size_t block_bytes = 2048;

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += block_bytes) {
        claim(to + i + block_bytes, block_bytes);
        std::memcpy(to + i, from + i, std::min(block_bytes, bytes - i));
    }
}

[[gnu::target("avx2"), gnu::optimize("O3")]] void add_avx2(float* to, const float* a,
                                                           const float* b, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
}
[[gnu::optimize("O3")]] void add_plain(float* to, const float* a, const float* b, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
}
void add(std::byte* to, const std::byte* a, const std::byte* b, std::size_t bytes) {
    const auto run = __builtin_cpu_supports("avx2") != 0 ? add_avx2 : add_plain;
    run(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(a),
        reinterpret_cast<const float*>(b), bytes / sizeof(float));
}

// The ranks' own memory, the sums' order, and the flags of both loops below.
class TwoCopies : public HostCase {
public:
    void rewrite(int iteration) {
        std::fill(mine_.begin(), mine_.end(), static_cast<float>(iteration));
    }

protected:
    TwoCopies(ProcessGroup& group, std::size_t bytes, std::size_t shared_bytes)
        : HostCase(group),
          ranks_(static_cast<std::size_t>(group.size())),
          rank_(static_cast<std::size_t>(group.rank())),
          mine_(bytes / sizeof(float)),
          inputs_(ranks_),
          shared_(group, ranks_ * page_bytes + shared_bytes),
          crowded_(is_crowded(group)) {}

    std::byte* data() { return reinterpret_cast<std::byte*>(mine_.data()); }
    std::size_t bytes() const { return mine_.size() * sizeof(float); }
    std::byte* shared() const { return shared_.data() + ranks_ * page_bytes; }
    // In whole lines.
    std::size_t share(std::size_t total, std::size_t rank) const {
        return total * rank / ranks_ / line_bytes * line_bytes;
    }
    void meet() {
        ++turn_;
        flag(rank_).store(turn_, std::memory_order_release);
        for (std::size_t peer = 0; peer < ranks_; ++peer) wait_for(flag(peer), turn_, crowded_);
    }
    // Adds up inputs_, block by block; also into `copy_to`, where there is one.
    void sum(std::byte* to, std::byte* copy_to, std::size_t bytes) {
        alignas(line_bytes) std::byte block[block_bytes];
        for (std::size_t i = 0; i < bytes; i += block_bytes) {
            const std::size_t count = std::min(block_bytes, bytes - i);
            if (copy_to != nullptr) claim(copy_to + i + block_bytes, block_bytes);
            const std::byte* so_far = inputs_[0] + i;
            for (std::size_t peer = 1; peer + 1 < ranks_; ++peer) {
                add(block, so_far, inputs_[peer] + i, count);
                so_far = block;
            }
            add(to + i, so_far, inputs_[ranks_ - 1] + i, count);
            if (copy_to != nullptr) std::memcpy(copy_to + i, to + i, count);
        }
    }

    std::size_t ranks_;
    std::size_t rank_;
    std::vector<float> mine_;
    std::vector<const std::byte*> inputs_;

private:
    std::atomic<std::uint32_t>& flag(std::size_t rank) const {
        return flag_at(shared_.data() + rank * page_bytes);
    }

    SharedPages shared_;
    bool crowded_;
    std::uint32_t turn_ = 0;
};

class ThroughChunks : public TwoCopies {
public:
    ThroughChunks(ProcessGroup& group, std::size_t bytes, std::size_t chunk)
        : TwoCopies(group, bytes, slots * chunk * (static_cast<std::size_t>(group.size()) + 1)),
          chunk_(chunk) {}

    void call() {
        stage(0);
        meet();
        for (std::size_t first = 0; first < bytes(); first += chunk_) {
            reduce(first);
            stage(first + chunk_);
            meet();
            take(first);
        }
    }

private:
    static constexpr std::size_t slots = 2;
    std::size_t count_at(std::size_t first) const {
        return first < bytes() ? std::min(chunk_, bytes() - first) : 0;
    }
    std::byte* slot(std::size_t rank, std::size_t first) const {
        return shared() + (rank * slots + first / chunk_ % slots) * chunk_;
    }
    // All of a chunk but this rank's share.
    void copy_others(std::byte* to, const std::byte* from, std::size_t count) {
        const std::size_t begin = share(count, rank_);
        const std::size_t end = rank_ + 1 == ranks_ ? count : share(count, rank_ + 1);
        copy(to, from, begin);
        copy(to + end, from + end, count - end);
    }
    void stage(std::size_t first) {
        copy_others(slot(rank_, first), data() + first, count_at(first));
    }
    void reduce(std::size_t first) {
        const std::size_t count = count_at(first);
        const std::size_t begin = share(count, rank_);
        const std::size_t end = rank_ + 1 == ranks_ ? count : share(count, rank_ + 1);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            inputs_[peer] = (peer == rank_ ? data() + first : slot(peer, first)) + begin;
        }
        sum(data() + first + begin, slot(ranks_, first) + begin, end - begin);
    }
    void take(std::size_t first) {
        copy_others(data() + first, slot(ranks_, first), count_at(first));
    }

    std::size_t chunk_;
};

class ThroughTheKernel : public TwoCopies {
public:
    ThroughTheKernel(ProcessGroup& group, std::size_t bytes)
        : TwoCopies(group, bytes, 0), places_(2 * ranks_), read_(ranks_ * at_once) {
        std::array<std::int64_t, 2> own{
            ::getpid(), static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data()))};
        group.all_gather(std::span(own), std::span(places_)).wait();
    }
    // On this rank.
    bool is_allowed() {
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            if (!move(::process_vm_readv, peer, 0, read_.data(), line_bytes)) return false;
        }
        return true;
    }
    void call() {
        meet();
        const std::size_t end = rank_ + 1 == ranks_ ? bytes() : share(bytes(), rank_ + 1);
        for (std::size_t first = share(bytes(), rank_); first < end; first += at_once) {
            reduce(first, std::min(at_once, end - first));
        }
        meet();
    }

private:
    static constexpr std::size_t at_once = std::size_t{256} << 10;
    template <class Move>
    bool move(Move through, std::size_t peer, std::size_t first, std::byte* own,
              std::size_t bytes) {
        const auto address = static_cast<std::uintptr_t>(places_[2 * peer + 1]) + first;
        const iovec here{own, bytes};
        const iovec there{reinterpret_cast<void*>(address), bytes};
        const auto pid = static_cast<pid_t>(places_[2 * peer]);
        return through(pid, &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
    }
    void reduce(std::size_t first, std::size_t count) {
        bool done = true;
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            std::byte* const from = peer == rank_ ? data() + first : read_.data() + peer * at_once;
            inputs_[peer] = from;
            if (peer == rank_) continue;
            done = move(::process_vm_readv, peer, first, from, count) && done;
        }
        sum(data() + first, nullptr, count);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            if (peer == rank_) continue;
            done = move(::process_vm_writev, peer, first, data() + first, count) && done;
        }
        if (!done) throw SystemError("--floor: cannot reach a peer's memory any more", errno);
    }

    std::vector<std::int64_t> places_;  // pid and address of each rank
    std::vector<std::byte> read_;
};

template <class Case>
double time_of(Case& bare_case, std::size_t bytes) {
    return measure(bare_case, bytes, {.iterations = 0, .warmup = 0, .budget_s = 0.1}).time_us;
}

}  // namespace

double measure_two_copies_us(ProcessGroup& group, std::size_t bytes) {
    double best = 0;
    for (const std::size_t chunk : {std::size_t{128} << 10, std::size_t{256} << 10}) {
        ThroughChunks chunks(group, bytes, chunk);
        const double us = time_of(chunks, bytes);
        best = best > 0 ? std::min(best, us) : us;
    }
    ThroughTheKernel kernel(group, bytes);
    if (group.all_reduce(int{kernel.is_allowed()}, ReduceOp::min) == 0) return best;
    const double us = time_of(kernel, bytes);
    group.barrier().wait();  // nobody's memory goes while another rank may reach it
    return std::min(best, us);
}

}  // namespace ddp::bench
