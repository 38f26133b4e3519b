#include "base/asymmetric_fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace ddp::base {
namespace {

bool membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

bool register_process() noexcept {
    return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
           membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

}  // namespace

// Until it has run, light fences are full ones: heavy fences reach those too.
std::atomic<bool> detail::reached_by_heavy_fences{register_process()};

void heavy_fence() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!detail::reached_by_heavy_fences.load(std::memory_order_relaxed)) return;
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
    // A child that was forked without its parent's registration, or a filter that came later: from
    // here on both fences are full ones. A light fence that has begun may still be a light one.
    if (errno == EPERM && register_process() && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        return;
    detail::reached_by_heavy_fences.store(false, std::memory_order_seq_cst);
}

bool heavy_fence_across_processes() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace ddp::base
