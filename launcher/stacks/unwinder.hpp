// From a copy of stacks to the functions that were called: by libdw (elfutils) where the host has
// it, which reads what compilers write for exceptions and debuggers; else along frame pointers, and
// without names.
#pragma once

#include "launcher/stacks/rank_stacks.hpp"
#include "launcher/stacks/stack_copy.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::launcher {

// Of each thread that has not gone, the first one first, then by number. In a process of its own:
// libdw reads files that may be anything, and takes its time. `problem` (out): why there are no
// names.
std::vector<ThreadStack> unwind(const StackCopy& copy, std::string& problem);
// Places in files instead of names: "0x12f0 (libfast.so)".
std::vector<ThreadStack> unwind_without_names(const StackCopy& copy);
// Where calls return to, along frame pointers, the place where it stands first.
std::vector<std::uint64_t> frame_pointers_of(const ThreadCopy& thread);

}  // namespace ddp::launcher
