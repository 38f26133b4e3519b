// Marks what the library exports. Everything else is hidden (-fvisibility=hidden), so that the
// internals can change without breaking a program that links the shared library.
#pragma once

#define DDP_API [[gnu::visibility("default")]]
