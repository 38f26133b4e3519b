/* What Boost.Process calls by glibc's name where the kernel's headers have it: glibc 2.34 is the first with that name. Included
   before all else. */
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

static inline int close_range(unsigned first, unsigned last, int flags) {
    return (int)syscall(SYS_close_range, first, last, flags);
}
