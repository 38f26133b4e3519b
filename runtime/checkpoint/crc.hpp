// Checksums: CRC-32C (Castagnoli) of our own files and the CRC-32 of zip files. Both detect every
// change within 32 neighbouring bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp::checkpoint {

// Of `bytes` after bytes whose checksum is `before`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace ddp::checkpoint
