#include "base/process/background_thread.hpp"

#include <ddp/error.hpp>

#include <signal.h>

#include <system_error>
#include <utility>

namespace ddp::base {

std::thread start_background_thread(std::function<void()> body) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    int code = 0;
    try {
        thread = std::thread(std::move(body));  // inherits the mask
    } catch (const std::system_error& error) {
        code = error.code().value();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (code != 0) throw SystemError("start a thread (see ulimit -u and -v)", code);
    return thread;
}

}  // namespace ddp::base
