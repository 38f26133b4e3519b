// One file written so that it is there whole or not at all, whatever happens, and read with nothing
// believed. Invariant: after commit() the bytes and the name survive a loss of power.
#pragma once

#include <ddp/error.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/files.hpp"

namespace ddp::checkpoint {

// "No space left on device"
std::string errno_text(int code);

constexpr const char* temporary_suffix = ".tmp";

// What is at the path may be replaced, and is the user's: then nothing there is ever removed, and
// the temporary file has a name that no other writer has.
enum class Existing { none, replaced };

// Writes beside the file's place, under its name + temporary_suffix. Every function throws
// CheckpointError that names the call, the path and the reason; nothing is then left there.
class FileWriter {
public:
    // Without `replaced` the temporary file must not exist.
    FileWriter(Files& files, std::string path, Existing existing = Existing::none);
    FileWriter(const FileWriter&) = delete;
    FileWriter& operator=(const FileWriter&) = delete;
    ~FileWriter();  // removes what was not committed

    void write(std::span<const std::byte> bytes);
    // fsync, rename over `path`, fsync of the directory. Refuses a file that a file system which
    // maps owners gives to another user: read_file would. A failed fsync is not tried again: the
    // kernel has forgotten what it could not write.
    void commit();

    std::uint64_t bytes() const noexcept { return bytes_; }
    std::uint32_t crc() const noexcept { return crc_; }  // CRC-32C of all bytes

private:
    void require_own();

    Files& files_;
    std::string path_;
    Existing existing_;
    std::string temporary_;
    std::string to_remove_;  // what the destructor removes
    int fd_ = -1;
    std::uint64_t bytes_ = 0;
    std::uint64_t writeback_bytes_ = 0;  // of them, given to the kernel to write
    std::uint32_t crc_ = 0;
};

struct FileBytes {
    std::unique_ptr<std::byte[]> data;
    std::size_t size = 0;
    std::span<const std::byte> span() const noexcept { return {data.get(), size}; }
};

// The file was not read; of what is in it this says nothing.
class UnreadError : public CheckpointError {
public:
    UnreadError(const std::string& what, int code)
        : CheckpointError(what + ": " + errno_text(code)), code_(code) {}
    int code() const noexcept { return code_; }  // an errno; ENOMEM: no memory for its bytes

private:
    int code_;
};

// Whose a file may be: this user's, as what the process made itself, or any, as what a user names.
enum class Owner { this_user, any };

// All of a file. Throws without the path: CheckpointError when it is a link, no regular file,
// another user's (unless that does not matter) or larger than `limit` (found before memory is taken
// for it); UnreadError when it cannot be read.
FileBytes read_file(Files& files, const std::string& path,
                    std::uint64_t limit = std::numeric_limits<std::uint64_t>::max(),
                    Owner owner = Owner::this_user);

// The directory and those above it that are missing, all durable. Throws CheckpointError.
void make_directories(Files& files, const std::string& path);

}  // namespace ddp::checkpoint
