// The control groups of a process, of both versions. Nothing here throws; what cannot be read is
// not there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::base {

// The folders of the groups that a controller ("cpu", "memory", "freezer") may bind the process by:
// of version 1, where it is mounted, then of version 2, each its own group first, then those above
// it up to the mount. In a container the path may be one of the host's: not all folders are there.
// `process`: a pid, or "self". `root`: what stands before /proc and /sys, for tests.
std::vector<std::string> cgroups_of(std::string_view process, std::string_view controller,
                                    const std::string& root = {});

}  // namespace ddp::base
