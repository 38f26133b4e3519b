// Descriptors over Unix sockets (unix(7), SCM_RIGHTS), one a message.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <span>

namespace ddp::base {

// With one byte, as a descriptor needs some. Waits for room only where the socket does. False, and
// errno: it is not sent. `descriptor` stays the caller's.
bool send_descriptor(int socket, int descriptor);

struct Received {
    ssize_t bytes = -1;        // of the message's data; -1: none has come, and errno says why
    UniqueFd descriptor = {};  // close-on-exec; invalid: the message had none
    bool is_lost = false;      // it had one, for which this process has no place (EMFILE)
};
// Takes a message, and the descriptor that it may have; what it has more is closed by the kernel.
// Without waiting (base::wait_readable()): EAGAIN.
Received receive_with_descriptor(int socket, std::span<char> data);

}  // namespace ddp::base
