#include "launcher/process/descriptor_limit.hpp"

#include <ddp/error.hpp>

#include <cerrno>
#include <string>

namespace ddp::launcher {
namespace {

constexpr rlim_t for_the_agent = 20;
constexpr rlim_t for_each_worker = 7;

rlimit descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) throw SystemError("getrlimit", errno);
    return limit;
}

}  // namespace

rlimit raise_descriptor_limit() {
    const rlimit before = descriptor_limit();
    rlimit raised = before;
    raised.rlim_cur = before.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &raised) != 0) throw SystemError("setrlimit", errno);
    return before;
}

void require_descriptors_for(int workers) {
    const rlim_t needed = for_the_agent + for_each_worker * static_cast<rlim_t>(workers);
    const rlim_t allowed = descriptor_limit().rlim_cur;
    if (allowed >= needed) return;
    throw UsageError(std::to_string(workers) + " workers need " + std::to_string(needed) +
                     " file descriptors in the launcher, and the limit is " +
                     std::to_string(allowed) + "; raise it (ulimit -Hn) or start fewer workers");
}

}  // namespace ddp::launcher
