// Every result of a call is looked at; only EINTR of open, read, write and mkdir is tried again.
#include "checkpoint/durable_file.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "base/random.hpp"
#include "checkpoint/crc.hpp"

namespace ddp::checkpoint {

namespace {

// Small enough to stay in the processor's cache between the checksum and the write.
constexpr std::size_t write_chunk = std::size_t{1} << 20;
// So that the disk works while the rest is written, and fsync finds little to do.
constexpr std::uint64_t writeback_chunk = std::uint64_t{8} << 20;

[[noreturn]] void fail(const char* what, const std::string& path, long long result) {
    throw CheckpointError(std::string("checkpoint: cannot ") + what + " " + path + ": " +
                          errno_text(static_cast<int>(-result)));
}

std::string directory_of(const std::string& path) {
    const std::string parent = std::filesystem::path(path).parent_path();
    return parent.empty() ? "." : parent;
}

template <class Call>
auto unless_interrupted(const Call& call) {
    auto result = call();
    while (result == -EINTR) result = call();
    return result;
}

void write_all(Files& files, int fd, const std::string& path, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = unless_interrupted([&] { return files.write(fd, bytes); });
        if (written <= 0) fail("write", path, written == 0 ? -ENOSPC : written);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

class OpenFile {
public:
    OpenFile(Files& files, int fd) : files_(files), fd_(fd) {}
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile() { files_.close(fd_); }
    int fd() const { return fd_; }

private:
    Files& files_;
    int fd_;
};

}  // namespace

std::string errno_text(int code) {
    if (code == lease_has_ended) {
        return "this host has lost contact with its job, which may go on elsewhere: nothing is "
               "committed from here";
    }
    return std::generic_category().message(code);
}

FileWriter::FileWriter(Files& files, std::string path, Existing existing)
    : files_(files),
      path_(std::move(path)),
      existing_(existing),
      temporary_(path_ +
                 (existing == Existing::none ? "" : "." + std::to_string(base::random_bits())) +
                 temporary_suffix) {
    fd_ = unless_interrupted([&] { return files_.create(temporary_); });
    if (fd_ < 0) fail("create", temporary_, fd_);
    to_remove_ = temporary_;
}

FileWriter::~FileWriter() {
    if (fd_ >= 0) files_.close(fd_);
    if (!to_remove_.empty()) files_.remove(to_remove_);
}

void FileWriter::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const auto chunk = bytes.first(std::min(bytes.size(), write_chunk));
        crc_ = crc32c(chunk, crc_);
        bytes_ += chunk.size();
        write_all(files_, fd_, temporary_, chunk);
        bytes = bytes.subspan(chunk.size());
        if (bytes_ - writeback_bytes_ < writeback_chunk) continue;
        files_.start_writeback(fd_, writeback_bytes_, bytes_ - writeback_bytes_);
        writeback_bytes_ = bytes_;
    }
}

// As a reader would: found now, and not when it is needed.
void FileWriter::require_own() {
    FileStatus status;
    if (const int result = files_.status(fd_, status); result < 0) fail("stat", temporary_, result);
    if (status.own) return;
    throw CheckpointError(
        "checkpoint: " + temporary_ +
        " belongs to another user than the one who has just made it, so it could not be read "
        "again: this file system maps owners (NFS with all_squash, some containers); use a folder "
        "on another one");
}

void FileWriter::commit() {
    require_own();
    if (const int result = files_.sync(fd_); result < 0) fail("fsync", temporary_, result);
    // Closed whatever close says: Linux does, also when a signal came.
    if (const int result = files_.close(std::exchange(fd_, -1)); result < 0) {
        fail("close", temporary_, result);
    }
    const std::string directory = directory_of(path_);
    const auto sync_directory = [&] {
        if (const int result = files_.sync_directory(directory); result < 0) {
            fail("fsync the folder", directory, result);
        }
    };
    if (existing_ == Existing::replaced) sync_directory();  // what cannot be synced fails before
    if (const int result = files_.rename(temporary_, path_); result < 0) {
        fail("rename", temporary_, result);
    }
    to_remove_ = existing_ == Existing::none ? path_ : "";
    sync_directory();
    to_remove_.clear();
}

namespace {

FileBytes memory_for(std::uint64_t bytes) {
    std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
    if (!memory)
        throw UnreadError("reading its " + std::to_string(bytes) + " bytes failed", ENOMEM);
    return {std::move(memory), bytes};
}

}  // namespace

FileBytes read_file(Files& files, const std::string& path, std::uint64_t limit, Owner owner) {
    const int fd = unless_interrupted([&] { return files.open(path); });
    if (fd == -ELOOP) throw CheckpointError("it is a symbolic link");
    if (fd < 0) throw UnreadError("opening it failed", -fd);
    const OpenFile file{files, fd};
    FileStatus status;
    if (const int result = files.status(fd, status); result < 0) {
        throw UnreadError("looking at it failed", -result);
    }
    if (!status.regular) throw CheckpointError("it is not a regular file");
    if (owner == Owner::this_user && !status.own) {
        throw CheckpointError("it belongs to another user");
    }
    if (status.size > limit) {
        throw CheckpointError("it has " + std::to_string(status.size) + " bytes, more than " +
                              std::to_string(limit));
    }
    FileBytes bytes = memory_for(status.size);
    std::span<std::byte> rest{bytes.data.get(), bytes.size};
    while (!rest.empty()) {
        const ssize_t got = unless_interrupted([&] { return files.read(fd, rest); });
        if (got < 0) throw UnreadError("reading it failed", static_cast<int>(-got));
        if (got == 0) throw CheckpointError("it became shorter while it was read");
        rest = rest.subspan(static_cast<std::size_t>(got));
    }
    return bytes;
}

void make_directories(Files& files, const std::string& path) {
    const std::string parent = directory_of(path);
    int result = unless_interrupted([&] { return files.make_directory(path); });
    if (result == -ENOENT && parent != path) {
        make_directories(files, parent);
        result = unless_interrupted([&] { return files.make_directory(path); });
    }
    const bool existed = result == -EEXIST;
    if (existed) result = files.sync_directory(path);  // only a directory can
    if (result < 0) fail("create the folder", path, result);
    // Also when it was there: whoever made it may have been killed before this.
    result = files.sync_directory(parent);
    if (result == -EACCES && existed) return;
    if (result < 0) fail("fsync the folder", parent, result);
}

}  // namespace ddp::checkpoint
