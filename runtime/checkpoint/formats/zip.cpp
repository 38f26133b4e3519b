// Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3. Sizes are read from the central
// directory; the local headers are only stepped over.
#include "checkpoint/formats/zip.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "checkpoint/crc.hpp"

namespace ddp::checkpoint {

namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t local_signature = 0x04034b50;
constexpr std::uint32_t descriptor_signature = 0x08074b50;
constexpr std::uint32_t central_signature = 0x02014b50;
constexpr std::uint32_t end_signature = 0x06054b50;
constexpr std::uint32_t end64_signature = 0x06064b50;
constexpr std::uint32_t locator64_signature = 0x07064b50;
constexpr std::size_t local_bytes = 30;
constexpr std::size_t central_bytes = 46;
constexpr std::size_t end_bytes = 22;
constexpr std::size_t end64_bytes = 56;
constexpr std::size_t locator64_bytes = 20;
constexpr std::size_t longest_comment = 65535;
constexpr std::uint16_t zip64_extra = 1;
constexpr std::uint32_t in_zip64 = 0xffffffffU;

[[noreturn]] void refuse_zip(const std::string& what) {
    throw CheckpointError("its zip archive " + what);
}

// Bounds are checked here and nowhere else.
Bytes part(Bytes bytes, std::uint64_t at, std::uint64_t count, const char* what) {
    if (at > bytes.size() || count > bytes.size() - at) {
        refuse_zip(std::string("is damaged: ") + what + " lies outside");
    }
    return bytes.subspan(at, count);
}

template <class T>
T number(Bytes bytes, std::size_t at) {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

std::string_view chars_of(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Directory {
    std::uint64_t entries;
    std::uint64_t bytes;
    std::uint64_t offset;
};

Directory find_directory(Bytes file) {
    if (file.size() < end_bytes) refuse_zip("is too short");
    const std::size_t first =
        file.size() - end_bytes - std::min(file.size() - end_bytes, longest_comment);
    std::size_t at = file.size() - end_bytes;
    while (number<std::uint32_t>(file, at) != end_signature) {
        if (at-- == first) refuse_zip("has no directory; was the file cut?");
    }
    const Bytes end = file.subspan(at);
    Directory found{number<std::uint16_t>(end, 10), number<std::uint32_t>(end, 12),
                    number<std::uint32_t>(end, 16)};
    if (at < locator64_bytes) return found;
    const Bytes locator = file.subspan(at - locator64_bytes);
    if (number<std::uint32_t>(locator, 0) != locator64_signature) return found;
    const Bytes end64 =
        part(file, number<std::uint64_t>(locator, 8), end64_bytes, "the zip64 directory's end");
    if (number<std::uint32_t>(end64, 0) != end64_signature) refuse_zip("has no zip64 directory");
    return {number<std::uint64_t>(end64, 32), number<std::uint64_t>(end64, 40),
            number<std::uint64_t>(end64, 48)};
}

// Where the contents of an entry are.
struct ZipRange {
    std::uint64_t size;
    std::uint64_t compressed_size;
    std::uint64_t offset;  // of the local header
};

// The 64-bit numbers that did not fit stand in an extra field, in this order.
ZipRange range_of(Bytes header, Bytes extra) {
    ZipRange range{number<std::uint32_t>(header, 24), number<std::uint32_t>(header, 20),
                   number<std::uint32_t>(header, 42)};
    while (extra.size() >= 4) {
        const auto id = number<std::uint16_t>(extra, 0);
        Bytes field = part(extra, 4, number<std::uint16_t>(extra, 2), "an extra field");
        extra = extra.subspan(4 + field.size());
        if (id != zip64_extra) continue;
        for (std::uint64_t* value : {&range.size, &range.compressed_size, &range.offset}) {
            if (*value != in_zip64) continue;
            *value = number<std::uint64_t>(part(field, 0, 8, "a zip64 number"), 0);
            field = field.subspan(8);
        }
    }
    return range;
}

Bytes contents_of(Bytes file, const std::string& name, const ZipRange& range) {
    const Bytes local = part(file, range.offset, local_bytes, "an entry");
    if (number<std::uint32_t>(local, 0) != local_signature) {
        refuse_zip("is damaged: no entry where \"" + name + "\" should be");
    }
    const std::uint64_t skipped = local_bytes + std::uint64_t{number<std::uint16_t>(local, 26)} +
                                  number<std::uint16_t>(local, 28);
    return part(part(file, range.offset, file.size() - range.offset, "an entry"), skipped,
                range.size, "an entry's end");
}

}  // namespace

std::vector<ZipEntry> read_zip(Bytes file) {
    const Directory directory = find_directory(file);
    Bytes rest = part(file, directory.offset, directory.bytes, "the directory");
    if (directory.entries > rest.size() / central_bytes) refuse_zip("claims too many entries");
    std::vector<ZipEntry> entries;
    std::uint64_t left = file.size();
    for (std::uint64_t i = 0; i < directory.entries; ++i) {
        const Bytes header = part(rest, 0, central_bytes, "the directory's end");
        if (number<std::uint32_t>(header, 0) != central_signature) refuse_zip("is damaged");
        const std::size_t name_bytes = number<std::uint16_t>(header, 28);
        const std::size_t extra_bytes = number<std::uint16_t>(header, 30);
        const std::size_t comment_bytes = number<std::uint16_t>(header, 32);
        const std::string_view name = chars_of(part(rest, central_bytes, name_bytes, "a name"));
        const Bytes extra = part(rest, central_bytes + name_bytes, extra_bytes, "an extra field");
        rest = rest.subspan(
            part(rest, 0, central_bytes + name_bytes + extra_bytes + comment_bytes, "a comment")
                .size());
        const ZipRange range = range_of(header, extra);
        const bool encrypted = (number<std::uint16_t>(header, 8) & 1U) != 0;
        if (encrypted || number<std::uint16_t>(header, 10) != 0) {
            entries.push_back({name, false, {}});
            continue;
        }
        if (range.compressed_size != range.size) refuse_zip("is damaged: an entry has two lengths");
        const Bytes bytes = contents_of(file, std::string(name), range);
        if (bytes.size() > left) refuse_zip("has entries that overlap");
        left -= bytes.size();
        if (crc32(bytes) != number<std::uint32_t>(header, 16)) {
            refuse_zip("is damaged: the checksum of \"" + std::string(name) + "\" is wrong");
        }
        entries.push_back({name, true, bytes});
    }
    return entries;
}

namespace {

constexpr std::uint16_t version_plain = 20;
constexpr std::uint16_t version_zip64 = 45;
constexpr std::uint16_t flags_written = 0x0808;  // a descriptor follows the data; UTF-8 names
constexpr std::uint16_t first_date = 0x21;       // 1980-01-01: the same bytes whenever written
constexpr std::uint64_t alignment = 64;
constexpr std::uint16_t padding_extra = 0x4246;  // "FB", torch's own

template <class T>
void append(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class... T>
std::string numbers(T... values) {
    std::string bytes;
    (append(bytes, values), ...);
    return bytes;
}

std::uint32_t low_32(std::uint64_t value) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, in_zip64));
}
std::uint16_t low_16(std::uint64_t value) {
    return static_cast<std::uint16_t>(std::min<std::uint64_t>(value, 0xffff));
}
std::uint16_t version_for(bool zip64) { return zip64 ? version_zip64 : version_plain; }

// What both headers of an entry have in common: from the flags to the date.
std::string common_fields() {
    constexpr std::uint16_t stored = 0;
    constexpr std::uint16_t midnight = 0;
    return numbers(flags_written, stored, midnight, first_date);
}

// For data that follows this header of an entry that begins at `offset`.
std::string local_header(const std::string& name, std::uint64_t size, std::uint64_t offset) {
    const bool zip64 = size >= in_zip64;
    std::string extra;
    if (zip64) extra = numbers(zip64_extra, std::uint16_t{16}, size, size);
    const std::uint64_t unpadded = offset + local_bytes + name.size() + extra.size() + 4;
    const auto padding = static_cast<std::uint16_t>((alignment - unpadded % alignment) % alignment);
    extra += numbers(padding_extra, padding) + std::string(padding, 'Z');
    const std::uint32_t in_header = zip64 ? in_zip64 : 0;
    return numbers(local_signature, version_for(zip64)) + common_fields() +
           numbers(std::uint32_t{0}, in_header, in_header, static_cast<std::uint16_t>(name.size()),
                   static_cast<std::uint16_t>(extra.size())) +
           name + extra;
}

std::string end_of_directory(std::uint64_t entries, std::uint64_t bytes, std::uint64_t offset) {
    constexpr std::uint16_t version = version_zip64;
    constexpr std::uint32_t disk = 0;
    constexpr std::uint32_t disks = 1;
    constexpr std::uint16_t no_comment = 0;
    return numbers(end64_signature, std::uint64_t{end64_bytes - 12}, version, version, disk, disk,
                   entries, entries, bytes, offset) +
           numbers(locator64_signature, disk, offset + bytes, disks) +
           numbers(end_signature, disk, low_16(entries), low_16(entries), low_32(bytes),
                   low_32(offset), no_comment);
}

}  // namespace

void ZipWriter::put(Bytes bytes) {
    sink_(bytes);
    written_ += bytes.size();
}

void ZipWriter::put(const std::string& bytes) { put(std::as_bytes(std::span(bytes))); }

void ZipWriter::add(std::string name, std::uint64_t size,
                    const std::function<void(const Sink&)>& produce) {
    Entry entry{std::move(name), size, written_};
    put(local_header(entry.name, size, entry.offset));
    const std::uint64_t begin = written_;
    produce([&](Bytes bytes) {
        entry.crc = crc32(bytes, entry.crc);
        put(bytes);
    });
    if (written_ - begin != size) throw std::logic_error("zip: an entry has another size");
    put(numbers(descriptor_signature, entry.crc));
    put(size >= in_zip64 ? numbers(size, size) : numbers(low_32(size), low_32(size)));
    entries_.push_back(std::move(entry));
}

void ZipWriter::add(std::string name, std::string_view data) {
    add(std::move(name), data.size(),
        [&](const Sink& sink) { sink(std::as_bytes(std::span(data))); });
}

void ZipWriter::finish() {
    std::string directory;
    for (const auto& [name, size, offset, crc] : entries_) {
        std::string field;
        if (size >= in_zip64) field += numbers(size, size);
        if (offset >= in_zip64) field += numbers(offset);
        const bool zip64 = !field.empty();
        if (zip64) field = numbers(zip64_extra, static_cast<std::uint16_t>(field.size())) + field;
        constexpr std::uint16_t none = 0;  // of comment, disk and attributes
        directory +=
            numbers(central_signature, none, version_for(zip64)) + common_fields() +
            numbers(crc, low_32(size), low_32(size), static_cast<std::uint16_t>(name.size()),
                    static_cast<std::uint16_t>(field.size()), none, none, none, std::uint32_t{0},
                    low_32(offset)) +
            name + field;
    }
    const std::uint64_t offset = written_;
    put(directory);
    put(end_of_directory(entries_.size(), directory.size(), offset));
}

}  // namespace ddp::checkpoint
