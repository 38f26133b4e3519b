// What a thread does between two looks at memory that another is about to change.
#pragma once

namespace ddp::base {

inline void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace ddp::base
