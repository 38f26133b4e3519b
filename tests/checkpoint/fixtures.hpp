// Files that PyTorch wrote, or is to read.
#pragma once

#include <string>

namespace ddp::checkpoint_test {

inline std::string fixture(const std::string& name) { return DDP_CHECKPOINT_FIXTURES "/" + name; }

}  // namespace ddp::checkpoint_test
