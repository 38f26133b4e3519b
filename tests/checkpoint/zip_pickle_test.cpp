// Archives and pickles that torch.save does not write, made by hand, byte for byte; and the limits
// of those that we write.
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/crc.hpp"
#include "checkpoint/formats/pickle.hpp"
#include "checkpoint/formats/zip.hpp"

namespace {

using ddp::checkpoint::parse_pickle;
using ddp::checkpoint::read_zip;
using ddp::checkpoint::ZipWriter;
using testing::HasSubstr;
using namespace std::string_literals;

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

template <class T>
std::string raw(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}
std::string u16(std::size_t value) { return raw(static_cast<std::uint16_t>(value)); }
std::string u32(std::size_t value) { return raw(static_cast<std::uint32_t>(value)); }
std::string u64(std::size_t value) { return raw(static_cast<std::uint64_t>(value)); }

struct ZipOptions {
    bool zip64 = false;
    std::size_t flags = 0;
    std::size_t method = 0;
    std::size_t crc_error = 0;
    std::size_t entries = 1;
    std::size_t repeats = 1;  // of the one entry in the directory
    std::string comment{};
    std::string data = "hello";
};

// One entry, "a/b".
std::string zip_file(const ZipOptions& options = {}) {
    const std::string name = "a/b";
    const std::string& data = options.data;
    const auto crc = ddp::checkpoint::crc32(bytes_of(data)) + options.crc_error;
    const std::string sizes =
        options.zip64 ? u32(~0U) + u32(~0U) : u32(data.size()) + u32(data.size());
    const std::string extra =
        options.zip64 ? u16(1) + u16(24) + u64(data.size()) + u64(data.size()) + u64(0) : "";
    std::string file = u32(0x04034b50) + u16(45) + u16(options.flags) + u16(options.method) +
                       u32(0) + u32(crc) + sizes + u16(name.size()) + u16(4) + name + "PADD" + data;
    const std::size_t directory_at = file.size();
    std::string directory;
    for (std::size_t i = 0; i < options.repeats; ++i) {
        directory += u32(0x02014b50) + u16(45) + u16(45) + u16(options.flags) +
                     u16(options.method) + u32(0) + u32(crc) + sizes + u16(name.size()) +
                     u16(extra.size()) + u16(0) + u16(0) + u16(0) + u32(0) +
                     u32(options.zip64 ? ~0U : 0) + name + extra;
    }
    file += directory;
    const std::size_t entries = options.entries * options.repeats;
    if (options.zip64) {
        const std::size_t end64_at = file.size();
        file += u32(0x06064b50) + u64(44) + u16(45) + u16(45) + u32(0) + u32(0) + u64(entries) +
                u64(entries) + u64(directory.size()) + u64(directory_at);
        file += u32(0x07064b50) + u32(0) + u64(end64_at) + u32(1);
    }
    return file + u32(0x06054b50) + u16(0) + u16(0) + u16(options.zip64 ? 0xffff : entries) +
           u16(options.zip64 ? 0xffff : entries) + u32(options.zip64 ? ~0U : directory.size()) +
           u32(options.zip64 ? ~0U : directory_at) + u16(options.comment.size()) + options.comment;
}

std::string zip_error(const std::string& file) {
    try {
        read_zip(bytes_of(file));
    } catch (const ddp::CheckpointError& error) {
        return error.what();
    }
    return "no error";
}

std::string pickle_error(const std::string& text) {
    try {
        parse_pickle(bytes_of(text));
    } catch (const ddp::CheckpointError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST(Zip, GivesStoredEntries) {
    for (const bool zip64 : {false, true}) {
        for (const char* comment : {"", "a comment"}) {
            const std::string file = zip_file({.zip64 = zip64, .comment = comment});
            const auto entries = read_zip(bytes_of(file));
            ASSERT_EQ(entries.size(), 1U);
            EXPECT_EQ(entries[0].name, "a/b");
            EXPECT_EQ(std::memcmp(entries[0].bytes.data(), "hello", 5), 0);
        }
    }
}

TEST(Zip, LeavesOutWhatIsCompressedOrEncrypted) {
    for (const auto& options : {ZipOptions{.method = 8}, ZipOptions{.flags = 1}}) {
        const std::string file = zip_file(options);
        const auto entries = read_zip(bytes_of(file));
        ASSERT_EQ(entries.size(), 1U);
        EXPECT_EQ(entries[0].name, "a/b");
        EXPECT_FALSE(entries[0].stored);
        EXPECT_TRUE(entries[0].bytes.empty());
    }
}

TEST(Zip, RefusesWhatMakesNoSense) {
    EXPECT_THAT(zip_error(zip_file({.crc_error = 1})), HasSubstr("checksum of \"a/b\" is wrong"));
    EXPECT_THAT(zip_error(zip_file({.entries = 60000})), HasSubstr("too many entries"));
    EXPECT_THAT(zip_error(zip_file({.repeats = 3, .data = std::string(5000, 'x')})),
                HasSubstr("entries that overlap"));
    EXPECT_THAT(zip_error("PK\x03\x04"), HasSubstr("too short"));
    EXPECT_THAT(zip_error(std::string(1000, 'x')), HasSubstr("no directory"));
}

TEST(Zip, IsRefusedWhenCutAtAnyByte) {
    for (const bool zip64 : {false, true}) {
        const std::string file = zip_file({.zip64 = zip64});
        for (std::size_t length = 0; length < file.size(); ++length) {
            EXPECT_NE(zip_error(file.substr(0, length)), "no error") << length;
        }
    }
}

TEST(WrittenZip, GivesItsEntriesBackAlsoMoreThan16BitsCanCount) {
    for (const std::size_t count : {0U, 1U, 65'535U, 70'000U}) {
        std::string file;
        ZipWriter writer{[&](std::span<const std::byte> bytes) {
            file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        }};
        for (std::size_t i = 0; i < count; ++i) {
            writer.add("a/" + std::to_string(i), std::string(i % 3, 'x'));
        }
        writer.finish();
        const auto entries = read_zip(bytes_of(file));
        ASSERT_EQ(entries.size(), count);
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(entries[i].name, "a/" + std::to_string(i));
            ASSERT_EQ(entries[i].bytes.size(), i % 3);
            ASSERT_EQ((reinterpret_cast<const char*>(entries[i].bytes.data()) - file.data()) % 64,
                      0);
        }
    }
}

TEST(WrittenZip, RefusesAnEntryOfAnotherSize) {
    ZipWriter writer{[](std::span<const std::byte>) {}};
    EXPECT_THROW(writer.add("a", 3, [](const ZipWriter::Sink& sink) { sink(bytes_of("four")); }),
                 std::logic_error);
}

// Zeros leave holes, so that the file takes no space on the disk.
class SparseFile {
public:
    SparseFile() {
        std::string name = (std::filesystem::temp_directory_path() / "ddp-zip-XXXXXX").string();
        fd_ = ::mkstemp(name.data());
        if (fd_ < 0) throw ddp::SystemError("mkstemp " + name, errno);
        ::unlink(name.c_str());
    }
    SparseFile(const SparseFile&) = delete;
    SparseFile& operator=(const SparseFile&) = delete;
    ~SparseFile() {
        if (map_ != nullptr) ::munmap(map_, size_);
        ::close(fd_);
    }
    void append(std::span<const std::byte> bytes) {
        const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
        if (!std::ranges::all_of(bytes, is_zero)) {
            ASSERT_EQ(::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_)),
                      static_cast<ssize_t>(bytes.size()));
        }
        size_ += bytes.size();
    }
    std::span<const std::byte> map() {
        if (::ftruncate(fd_, static_cast<off_t>(size_)) != 0) return {};
        map_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
        if (map_ == MAP_FAILED) map_ = nullptr;
        return {static_cast<const std::byte*>(map_), map_ == nullptr ? 0 : size_};
    }

private:
    int fd_;
    std::size_t size_ = 0;
    void* map_ = nullptr;
};

// Sizes, and then places, on either side of what 32 bits can say.
TEST(WrittenZip, SoakIsReadBackAbove4Gibibytes) {
    const std::vector<std::byte> zeros(std::size_t{1} << 20);
    for (const std::uint64_t size : {0xfffffffeULL, 0xffffffffULL, 0x100000000ULL}) {
        SparseFile file;
        ZipWriter writer{[&](std::span<const std::byte> bytes) { file.append(bytes); }};
        writer.add("first", "1");
        writer.add("large", size, [&](const ZipWriter::Sink& sink) {
            for (std::uint64_t left = size; left > 0;) {
                const auto part = std::min<std::uint64_t>(left, zeros.size());
                sink(std::span(zeros).first(part));
                left -= part;
            }
        });
        writer.add("last", "end");
        writer.finish();
        const auto entries = read_zip(file.map());
        ASSERT_EQ(entries.size(), 3U);
        EXPECT_EQ(entries[1].name, "large");
        EXPECT_EQ(entries[1].bytes.size(), size);
        EXPECT_EQ(entries[2].name, "last");
        EXPECT_EQ(std::memcmp(entries[2].bytes.data(), "end", 3), 0);
        EXPECT_EQ((entries[2].bytes.data() - entries[0].bytes.data()) % 64, 0);
    }
}

TEST(WrittenPickle, HoldsNumbersOfEveryLength) {
    using ddp::checkpoint::PickledTensor;
    std::vector<std::pair<std::string_view, PickledTensor>> tensors;
    for (const std::int64_t n :
         {std::int64_t{0}, std::int64_t{255}, std::int64_t{256}, std::int64_t{65'535},
          std::int64_t{65'536}, std::int64_t{INT32_MAX}, std::int64_t{1} << 31,
          std::int64_t{1} << 40, std::int64_t{INT64_MAX}}) {
        for (std::size_t dims = 0; dims <= 8; ++dims) {
            const std::vector<std::int64_t> extents(dims, n);
            const auto count = static_cast<std::uint64_t>(n);
            tensors.emplace_back("a",
                                 PickledTensor{"ByteStorage", "7", count, count, extents, extents});
        }
    }
    const std::string text = ddp::checkpoint::write_pickle(tensors);
    const auto pickle = parse_pickle(bytes_of(text));
    ASSERT_EQ(pickle.tensors.size(), tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto& found = pickle.tensors[i];
        const auto& wanted = tensors[i].second;
        EXPECT_EQ(found.dtype, "ByteStorage");
        EXPECT_EQ(found.key, "7");
        EXPECT_EQ(found.storage_elements, wanted.storage_elements);
        EXPECT_EQ(found.offset, wanted.offset);
        EXPECT_EQ(found.shape, wanted.shape);
        EXPECT_EQ(found.strides, wanted.strides);
    }
}

TEST(Pickle, ReadsValues) {
    const std::string text = "\x80\x02}(X\x01\0\0\0aK\x07X\x01\0\0\0bJ\xff\xff\xff\xffu."s;
    const auto pickle = parse_pickle(bytes_of(text));
    const auto& root = pickle.values[pickle.root];
    ASSERT_EQ(root.kind, ddp::checkpoint::PickleValue::Kind::dict);
    ASSERT_EQ(root.items.size(), 4U);
    EXPECT_EQ(pickle.values[root.items[0]].text, "a");
    EXPECT_EQ(pickle.values[root.items[1]].integer, 7);
    EXPECT_EQ(pickle.values[root.items[3]].integer, -1);
}

TEST(Pickle, ExecutesNothing) {
    EXPECT_THAT(pickle_error("\x80\x02"
                             "cos\nsystem\nX\x02\0\0\0ls\x85R."s),
                HasSubstr("uses os.system, which is no part of a state dictionary"));
    EXPECT_THAT(pickle_error("\x80\x02"
                             "cbuiltins\neval\n."s),
                HasSubstr("uses builtins.eval"));
    EXPECT_THAT(pickle_error("\x80\x02"
                             "ctorch._utils\nStorage\n."s),
                HasSubstr("torch._utils"));
    // Storages are types, not functions.
    EXPECT_THAT(pickle_error("\x80\x02"
                             "ctorch\nFloatStorage\n)R."s),
                HasSubstr("FloatStorage"));
}

TEST(Pickle, RefusesWhatMakesNoSense) {
    for (const char* text :
         {"", ".", "(", "(.", "}X", "}s.", "}K\x01s.", "(u.", "]K\x01K\x02s.", "K\x01Q.", "h\x07.",
          "q\x01.", "}(K\x01u.", "R.", "\x85.", "b.", "t.", "}K\x01K\x02t."}) {
        EXPECT_NE(pickle_error(std::string("\x80\x02") + text), "no error") << text;
    }
    EXPECT_THAT(pickle_error("\x80\x04."), HasSubstr("protocol 4"));
    EXPECT_THAT(pickle_error("\x80\x02\x95"), HasSubstr("instruction 0x95"));
    EXPECT_THAT(pickle_error("\x80\x02X\xff\xff\xff\xff"), HasSubstr("ends too early"));
}

TEST(Pickle, DoesNotMindValuesThatContainThemselves) {
    EXPECT_EQ(pickle_error("\x80\x02}q\x01X\x01\0\0\0ah\x01s."s), "no error");
}
