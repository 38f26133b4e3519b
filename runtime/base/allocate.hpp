// Memory for a file descriptor, now: so that a full memory is an error here and not a SIGBUS later.
#pragma once

#include <cstddef>

namespace ddp::base {

// Gives the file this size with all its memory. Returns an errno, 0 when done.
int allocate(int fd, std::size_t bytes);

}  // namespace ddp::base
