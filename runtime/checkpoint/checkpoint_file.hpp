// One checkpoint file in a folder: written whole and renamed into place, read back strictly.
// Without a process group: what rank 0 does. Invariant: the caller's tensors change only when all
// of the file is good.
#pragma once

#include <ddp/tensor.hpp>

#include <filesystem>
#include <optional>
#include <vector>

namespace ddp::checkpoint {

constexpr const char* file_name = "checkpoint.safetensors";

// Creates the folder when it is not there. Throws CheckpointError; the earlier file is then intact.
void write_checkpoint(const std::filesystem::path& dir, int epoch,
                      const std::vector<NamedTensor>& state);

// The finished epochs of the file; nothing when there is no file. Throws CheckpointError.
std::optional<int> read_checkpoint(const std::filesystem::path& dir,
                                   const std::vector<NamedTensor>& state);

}  // namespace ddp::checkpoint
