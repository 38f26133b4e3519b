// The control groups of a process, of both versions. Nothing here throws; what cannot be read is
// not there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::base {

// The folder of a process's own group, of those above it, and, last, of the mount. In a container
// the path may be one of the host's: not all of them are there, and the mount is the own group.
using CgroupFolders = std::vector<std::string>;

// Where a controller ("cpu", "memory", "freezer") may bind the process: of version 1, where it is
// mounted, then of version 2. `process`: a pid, or "self". `root`: what stands before /proc and
// /sys, for tests.
std::vector<CgroupFolders> cgroups_of(std::string_view process, std::string_view controller,
                                      const std::string& root = {});

}  // namespace ddp::base
