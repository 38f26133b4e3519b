// Zip archives whose entries are stored as they are, as torch.save writes them: read and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::checkpoint {

struct ZipEntry {
    std::string_view name;
    bool stored;  // false: compressed or encrypted; its bytes are then left out
    std::span<const std::byte> bytes;
};

// Views of `file`. Every stored entry's checksum has been compared, and all together are no longer
// than the file. Also zip64. Throws CheckpointError, without the path, for sizes, offsets and
// checksums that are wrong.
std::vector<ZipEntry> read_zip(std::span<const std::byte> file);

// An archive (format.md) in the order in which its bytes leave, so that no data is held in memory
// or read twice. Each entry's data begins at a multiple of 64, counted from the archive's first
// byte.
class ZipWriter {
public:
    using Sink = std::function<void(std::span<const std::byte>)>;

    explicit ZipWriter(Sink sink) : sink_(std::move(sink)) {}

    // `produce` gives the data, `size` bytes of it in all, to the Sink that it is called with.
    void add(std::string name, std::uint64_t size, const std::function<void(const Sink&)>& produce);
    void add(std::string name, std::string_view data);
    void finish();  // the directory; nothing may be added after it

private:
    struct Entry {
        std::string name;
        std::uint64_t size;
        std::uint64_t offset;  // of its local header
        std::uint32_t crc = 0;
    };
    void put(std::span<const std::byte> bytes);
    void put(const std::string& bytes);

    Sink sink_;
    std::uint64_t written_ = 0;
    std::vector<Entry> entries_;
};

}  // namespace ddp::checkpoint
