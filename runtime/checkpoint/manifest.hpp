// The manifest: the small text file that makes a checkpoint valid (format.md). Written last, so a
// checkpoint without one does not exist. Invariant: decode accepts exactly what encode writes.
#pragma once

#include <ddp/checkpoint.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::checkpoint {

constexpr std::uint64_t max_manifest_bytes = 4096;

struct Manifest {
    Progress progress;
    std::string file;  // of the tensors, in the same folder
    std::uint64_t bytes = 0;
    std::uint32_t crc = 0;
};

std::string encode(const Manifest& manifest);
// Throws CheckpointError that says what is wrong, without the file's name.
Manifest decode_manifest(std::string_view text);

}  // namespace ddp::checkpoint
