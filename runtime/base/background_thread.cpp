#include "base/background_thread.hpp"

#include <signal.h>

#include <utility>

namespace ddp::base {

std::thread start_background_thread(std::function<void()> body) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread(std::move(body));  // inherits the mask
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

}  // namespace ddp::base
