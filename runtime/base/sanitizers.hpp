// DDP_SANITIZES_ADDRESSES, DDP_SANITIZES_THREADS: defined where AddressSanitizer or ThreadSanitizer
// watches the program, by whichever flags it came; GCC and clang say so in different ways.
#pragma once

#if defined(__has_feature)
#define DDP_HAS_FEATURE(name) __has_feature(name)
#else
#define DDP_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || DDP_HAS_FEATURE(address_sanitizer)
#define DDP_SANITIZES_ADDRESSES
#endif
#if defined(__SANITIZE_THREAD__) || DDP_HAS_FEATURE(thread_sanitizer)
#define DDP_SANITIZES_THREADS
#endif

#undef DDP_HAS_FEATURE
