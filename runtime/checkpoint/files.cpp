// The real system calls. A lost host's late change could harm what the job does elsewhere by now: a
// rename could replace a newer checkpoint's file, a removal take a file that is being written.
#include "checkpoint/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/unique_fd.hpp"
#include "contract/control_page.hpp"

namespace ddp::checkpoint {

namespace {

template <class Result>
Result or_errno(Result result) {
    return result < 0 ? static_cast<Result>(-errno) : result;
}

class SystemFiles final : public Files {
public:
    explicit SystemFiles(std::function<bool()> lease_holds)
        : lease_holds_(std::move(lease_holds)) {}

    int create(Path path) override {
        return under_lease(
            [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
    }
    int open(Path path) override {
        return or_errno(
            ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    }
    int status(int fd, FileStatus& status) override {
        struct stat found {};
        if (::fstat(fd, &found) != 0) return -errno;
        status = {S_ISREG(found.st_mode), found.st_uid == ::geteuid(),
                  static_cast<std::uint64_t>(found.st_size)};
        return 0;
    }
    ssize_t read(int fd, std::span<std::byte> bytes) override {
        return or_errno(::read(fd, bytes.data(), bytes.size()));
    }
    ssize_t write(int fd, std::span<const std::byte> bytes) override {
        return or_errno(::write(fd, bytes.data(), bytes.size()));
    }
    int start_writeback(int fd, std::uint64_t offset, std::uint64_t bytes) override {
        return or_errno(::sync_file_range(fd, static_cast<off64_t>(offset),
                                          static_cast<off64_t>(bytes), SYNC_FILE_RANGE_WRITE));
    }
    int sync(int fd) override { return or_errno(::fsync(fd)); }
    int close(int fd) override { return or_errno(::close(fd)); }

    int rename(Path from, Path to) override {
        return under_lease([&] { return std::rename(from.c_str(), to.c_str()); });
    }
    int remove(Path path) override {
        return under_lease([&] { return ::unlink(path.c_str()); });
    }
    int make_directory(Path path) override {
        return under_lease([&] { return ::mkdir(path.c_str(), 0777); });
    }
    int sync_directory(Path path) override {
        const base::UniqueFd fd{open_directory(path)};
        return fd ? or_errno(::fsync(fd.get())) : -errno;
    }
    int list(Path path, std::vector<std::string>& names) override {
        std::error_code error;
        std::filesystem::directory_iterator entries{path, error};
        for (; !error && entries != std::filesystem::directory_iterator{};
             entries.increment(error)) {
            names.push_back(entries->path().filename());
        }
        return -error.value();
    }
    int lock_directory(Path path) override {
        base::UniqueFd fd{open_directory(path)};
        if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return -errno;
        return fd.release();
    }

private:
    static int open_directory(Path path) {
        return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    template <class Call>
    int under_lease(const Call& call) {
        return lease_holds_() ? or_errno(call()) : -lease_has_ended;
    }

    std::function<bool()> lease_holds_;
};

}  // namespace

std::unique_ptr<Files> make_system_files(std::function<bool()> lease_holds) {
    return std::make_unique<SystemFiles>(std::move(lease_holds));
}

// Never destroyed: a save may end in a destructor of the program's.
Files& system_files() {
    static Files& files = *make_system_files(&contract::lease_holds).release();
    return files;
}

}  // namespace ddp::checkpoint
