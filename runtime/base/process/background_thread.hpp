// A thread of ours inside somebody else's program: it takes none of the program's signals, so that
// handlers run where the program expects them.
#pragma once

#include <functional>
#include <thread>

namespace ddp::base {

// Throws SystemError when there can be no more threads.
std::thread start_background_thread(std::function<void()> body);

}  // namespace ddp::base
