// The version of ddp, as macros for the preprocessor and as a function for what was linked.
#pragma once

#include <ddp/export.hpp>

// Of the headers: 0.1.0 is 0, 1 and 0.
#define DDP_VERSION_MAJOR 0
#define DDP_VERSION_MINOR 1
#define DDP_VERSION_PATCH 0
#define DDP_VERSION "0.1.0"

namespace ddp {

// The version of the library that the program runs with, such as "0.1.0". Differs from DDP_VERSION
// when a program was compiled against other headers than the shared library it found.
DDP_API const char* version() noexcept;

}  // namespace ddp
