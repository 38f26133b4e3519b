// Marks what the library exports. Everything else is hidden (-fvisibility=hidden), so that the
// internals can change without breaking a program that links the shared library.
#pragma once

#if __cplusplus < 202002L
#error "ddp needs C++20: -std=c++20, or in CMake target_compile_features(... cxx_std_20)"
#endif

#define DDP_API [[gnu::visibility("default")]]
