#include "base/process/background_thread.hpp"

#include <ddp/error.hpp>

#include <system_error>
#include <utility>

namespace ddp::base {

SignalBlock::SignalBlock() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalBlock::~SignalBlock() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::thread start_background_thread(std::function<void()> body) {
    const SignalBlock no_signals;
    try {
        return std::thread(std::move(body));
    } catch (const std::system_error& error) {
        throw SystemError("start a thread (see ulimit -u and -v)", error.code().value());
    }
}

}  // namespace ddp::base
