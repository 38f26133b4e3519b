#include "bench/bare.hpp"

#include "bench/bare_loops.hpp"
#include "bench/host_case.hpp"
#include "bench/method.hpp"
#include "bench/shared_pages.hpp"
#include "bench/shared_sum.hpp"
#include "bench/two_copies.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ddp::bench {
namespace {

constexpr std::size_t small_bytes = 4096;
constexpr std::size_t least_two_copies = std::size_t{256} << 10;

// broadcast and scatter from rank 0.
class FewLines : public HostCase {
public:
    FewLines(ProcessGroup& group, bool scatters, std::size_t bytes)
        : HostCase(group),
          parts_(scatters ? static_cast<std::size_t>(group.size()) : 1),
          part_(bytes / parts_),
          shared_(group, slots * slot_bytes),
          source_(bytes),
          result_(bytes),
          crowded_(is_crowded(group)) {}

    void rewrite(int iteration) {
        const bool gives = group_.rank() == 0 || parts_ == 1;
        if (gives) std::fill(source_.begin(), source_.end(), static_cast<std::byte>(iteration));
    }
    void call() {
        std::byte* const slot = shared_.data() + ++turn_ % slots * slot_bytes;
        std::byte* const lines = slot + line_bytes;
        const std::size_t own = parts_ > 1 ? part_ : 0;
        if (group_.rank() == 0) {
            std::memcpy(lines, source_.data() + own, source_.size() - own);
            flag_at(slot).store(turn_, std::memory_order_release);
            std::memcpy(result_.data(), source_.data(), own);
            claim(shared_.data() + (turn_ + 1) % slots * slot_bytes + line_bytes, source_.size());
            return;
        }
        wait_for(flag_at(slot), turn_, crowded_);
        const std::size_t before = own * static_cast<std::size_t>(group_.rank() - 1);
        std::memcpy(result_.data(), lines + before, part_);
        asm volatile("" : : "r"(result_.data()) : "memory");
    }

private:
    static constexpr std::size_t slots = 4;
    static constexpr std::size_t slot_bytes = 2 * small_bytes;  // with a flag
    std::size_t parts_;
    std::size_t part_;
    SharedPages shared_;
    std::vector<std::byte> source_;
    std::vector<std::byte> result_;
    bool crowded_;
    std::uint32_t turn_ = 0;
};

}  // namespace

std::optional<double> measure_bare_us(ProcessGroup& group, const Options& options,
                                      std::size_t bytes) {
    if (group.size() < 2) return std::nullopt;
    const bool scatters = options.kind == Kind::scatter;
    if ((scatters || options.kind == Kind::broadcast) && bytes > 0 && bytes <= small_bytes) {
        FewLines lines(group, scatters, bytes);
        return measure(lines, bytes, {.iterations = 0, .warmup = 0, .budget_s = 0.1}).time_us;
    }
    if (options.kind != Kind::all_reduce || options.dtype != DType::float32) return std::nullopt;
    const bool is_shared = options.path == Path::shared;
    if (bytes < (is_shared ? large_bytes : least_two_copies)) return std::nullopt;
    return is_shared ? measure_shared_sum_us(group, bytes) : measure_two_copies_us(group, bytes);
}

}  // namespace ddp::bench
