// The system call that a process sleeps in, without stopping it.
#pragma once

#include <sys/types.h>

#include <string>

namespace ddp::launcher {

// Of its first thread: "read of /data/part-7", "recvfrom of a socket", "futex". Printable. Empty:
// it is in none, or may not be looked at (Yama, another user's).
std::string system_call_of(pid_t pid);

}  // namespace ddp::launcher
