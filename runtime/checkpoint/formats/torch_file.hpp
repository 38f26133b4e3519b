// What torch.save writes of a state dictionary, read and written: a zip archive of one pickle and
// the storages.
#pragma once

#include <ddp/state_dict.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/durable_file.hpp"

namespace ddp::checkpoint {

bool is_torch_file(std::span<const std::byte> file);  // by its first bytes, the old format too

// Tensors share their storages' memory as they did in Python, where they are contiguous. Needs
// memory for at most one further copy of the file. Throws CheckpointError, without the path.
StateDict read_torch_file(const std::shared_ptr<std::byte[]>& memory, std::size_t size);

// As format.md says. Throws CheckpointError: a name that is not UTF-8, or see FileWriter.
void write_torch_file(Files& files, const std::string& path,
                      const std::vector<NamedTensor>& tensors, Existing existing = Existing::none);

}  // namespace ddp::checkpoint
