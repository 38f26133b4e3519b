// Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3. Sizes come from the central
// directory; the local headers are only stepped over.
#include "checkpoint/zip.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "checkpoint/crc.hpp"

namespace ddp::checkpoint {

namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t local_signature = 0x04034b50;
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

[[noreturn]] void refuse(const std::string& what) {
    throw CheckpointError("its zip archive " + what);
}

// Bounds are checked here and nowhere else.
Bytes part(Bytes bytes, std::uint64_t at, std::uint64_t count, const char* what) {
    if (at > bytes.size() || count > bytes.size() - at) {
        refuse(std::string("is damaged: ") + what + " lies outside");
    }
    return bytes.subspan(at, count);
}

template <class T>
T number(Bytes bytes, std::size_t at) {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

std::string_view text_of(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Directory {
    std::uint64_t entries;
    std::uint64_t bytes;
    std::uint64_t offset;
};

Directory find_directory(Bytes file) {
    if (file.size() < end_bytes) refuse("is too short");
    const std::size_t first =
        file.size() - end_bytes - std::min(file.size() - end_bytes, longest_comment);
    std::size_t at = file.size() - end_bytes;
    while (number<std::uint32_t>(file, at) != end_signature) {
        if (at-- == first) refuse("has no directory; was the file cut?");
    }
    const Bytes end = file.subspan(at);
    Directory found{number<std::uint16_t>(end, 10), number<std::uint32_t>(end, 12),
                    number<std::uint32_t>(end, 16)};
    if (at < locator64_bytes) return found;
    const Bytes locator = file.subspan(at - locator64_bytes);
    if (number<std::uint32_t>(locator, 0) != locator64_signature) return found;
    const Bytes end64 =
        part(file, number<std::uint64_t>(locator, 8), end64_bytes, "the zip64 directory's end");
    if (number<std::uint32_t>(end64, 0) != end64_signature) refuse("has no zip64 directory");
    return {number<std::uint64_t>(end64, 32), number<std::uint64_t>(end64, 40),
            number<std::uint64_t>(end64, 48)};
}

struct Place {
    std::uint64_t size;
    std::uint64_t packed;
    std::uint64_t offset;
};

// The 64-bit numbers that did not fit stand in an extra field, in this order.
Place place_of(Bytes header, Bytes extra) {
    Place place{number<std::uint32_t>(header, 24), number<std::uint32_t>(header, 20),
                number<std::uint32_t>(header, 42)};
    while (extra.size() >= 4) {
        const auto id = number<std::uint16_t>(extra, 0);
        Bytes field = part(extra, 4, number<std::uint16_t>(extra, 2), "an extra field");
        extra = extra.subspan(4 + field.size());
        if (id != zip64_extra) continue;
        for (std::uint64_t* value : {&place.size, &place.packed, &place.offset}) {
            if (*value != in_zip64) continue;
            *value = number<std::uint64_t>(part(field, 0, 8, "a zip64 number"), 0);
            field = field.subspan(8);
        }
    }
    return place;
}

Bytes contents_of(Bytes file, const std::string& name, const Place& place) {
    const Bytes local = part(file, place.offset, local_bytes, "an entry");
    if (number<std::uint32_t>(local, 0) != local_signature) {
        refuse("is damaged: no entry where \"" + name + "\" should be");
    }
    const std::uint64_t skipped = local_bytes + std::uint64_t{number<std::uint16_t>(local, 26)} +
                                  number<std::uint16_t>(local, 28);
    return part(part(file, place.offset, file.size() - place.offset, "an entry"), skipped,
                place.size, "an entry's end");
}

}  // namespace

std::vector<ZipEntry> read_zip(Bytes file) {
    const Directory directory = find_directory(file);
    Bytes rest = part(file, directory.offset, directory.bytes, "the directory");
    if (directory.entries > rest.size() / central_bytes) refuse("claims too many entries");
    std::vector<ZipEntry> entries;
    std::uint64_t left = file.size();
    for (std::uint64_t i = 0; i < directory.entries; ++i) {
        const Bytes header = part(rest, 0, central_bytes, "the directory's end");
        if (number<std::uint32_t>(header, 0) != central_signature) refuse("is damaged");
        const std::size_t name_bytes = number<std::uint16_t>(header, 28);
        const std::size_t extra_bytes = number<std::uint16_t>(header, 30);
        const std::size_t comment_bytes = number<std::uint16_t>(header, 32);
        const std::string_view name = text_of(part(rest, central_bytes, name_bytes, "a name"));
        const Bytes extra = part(rest, central_bytes + name_bytes, extra_bytes, "an extra field");
        rest = rest.subspan(
            part(rest, 0, central_bytes + name_bytes + extra_bytes + comment_bytes, "a comment")
                .size());
        const Place place = place_of(header, extra);
        const bool encrypted = (number<std::uint16_t>(header, 8) & 1U) != 0;
        if (encrypted || number<std::uint16_t>(header, 10) != 0) {
            entries.push_back({name, false, {}});
            continue;
        }
        if (place.packed != place.size) refuse("is damaged: an entry has two lengths");
        const Bytes bytes = contents_of(file, std::string(name), place);
        if (bytes.size() > left) refuse("has entries that overlap");
        left -= bytes.size();
        if (crc32(bytes) != number<std::uint32_t>(header, 16)) {
            refuse("is damaged: the checksum of \"" + std::string(name) + "\" is wrong");
        }
        entries.push_back({name, true, bytes});
    }
    return entries;
}

}  // namespace ddp::checkpoint
