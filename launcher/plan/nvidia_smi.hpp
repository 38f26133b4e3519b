// How many GPUs nvidia-smi lists: for WSL2, where no file tells. The one program that the launcher
// runs for itself, so that it opens no driver library: a driver that hangs or crashes does so in a
// child, which has 2 s.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace ddp::launcher {

// Runs `program -L`, single-threaded. Nothing when it cannot be run, fails, or is not done in time;
// it is killed then.
std::optional<std::size_t> count_listed_gpus(const std::string& program);

}  // namespace ddp::launcher
