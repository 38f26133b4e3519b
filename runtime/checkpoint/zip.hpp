// The directory of a zip archive whose entries are stored as they are, as torch.save writes it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ddp::checkpoint {

struct ZipEntry {
    std::string_view name;
    bool stored;  // false: compressed or encrypted; its bytes are then left out
    std::span<const std::byte> bytes;
};

// Views of `file`. Every stored entry's checksum has been compared, and all together are no longer
// than the file. Also zip64. Throws CheckpointError, without the path, for sizes, places and
// checksums that are wrong.
std::vector<ZipEntry> read_zip(std::span<const std::byte> file);

}  // namespace ddp::checkpoint
