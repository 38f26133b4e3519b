// A thread of ours inside somebody else's program: it takes none of the program's signals, so that
// handlers run where the program expects them.
#pragma once

#include <signal.h>

#include <functional>
#include <thread>

namespace ddp::base {

// While it lives this thread takes no signals, and threads that are made meanwhile never do: those
// of libraries.
class SignalBlock {
public:
    SignalBlock() noexcept;
    ~SignalBlock();
    SignalBlock(const SignalBlock&) = delete;
    SignalBlock& operator=(const SignalBlock&) = delete;

private:
    sigset_t before_{};
};

// Throws SystemError when there can be no more threads.
std::thread start_background_thread(std::function<void()> body);

}  // namespace ddp::base
