// A safetensors file (format.md) on the disk: written durably, read as a whole.
#pragma once

#include <ddp/tensor.hpp>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/durable_file.hpp"
#include "checkpoint/files.hpp"
#include "checkpoint/formats/safetensors.hpp"

namespace ddp::checkpoint {

struct WrittenFile {
    std::uint64_t bytes = 0;
    std::uint32_t crc = 0;
};

// Throws CheckpointError: two tensors of one name, or see FileWriter.
WrittenFile write_safetensors(Files& files, const std::string& path,
                              const std::vector<NamedTensor>& tensors,
                              std::map<std::string, std::string> metadata,
                              Existing existing = Existing::none);

struct SafetensorsView {
    Header header;
    std::span<const std::byte> data;  // what comes after the header
};

// Throws CheckpointError, without the path, for everything that format.md refuses.
SafetensorsView parse_safetensors(std::span<const std::byte> file);

}  // namespace ddp::checkpoint
