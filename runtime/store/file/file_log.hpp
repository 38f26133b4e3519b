// FileLog: the append-only file underneath FileStore, as protocol.md describes it: records of
// changes, each whole or absent. All access is between lock() and the lock's end. Invariant: the
// position never lies inside a record.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "store/server/store_map.hpp"

namespace ddp::store {

enum class ChangeKind : std::uint8_t { set = 1, append = 2, erase = 3 };

void append_change(std::string& payload, ChangeKind kind, const std::string& key,
                   std::string_view value);

class FileLog {
public:
    enum class Access { read, write };

    // Opens or creates the file. Throws SystemError.
    explicit FileLog(std::string path);

    // The file's lock; gone when it goes.
    class Lock {
    public:
        explicit Lock(int fd) : fd_(fd) {}
        Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
        Lock& operator=(Lock&&) = delete;
        ~Lock();

    private:
        int fd_;
    };
    // Throws TimeoutError when others hold it until the deadline, UsageError in a child made by
    // fork, which would share it with its parent.
    Lock lock(Access access, const base::Deadline& deadline);

    // Under a lock: applies the records that came since the last call. Throws SystemError (EBADMSG)
    // when the file is damaged or not a store.
    void read_new(StoreMap& map);
    // Under a write lock, after read_new: cuts off a half-written record and appends one. read_new
    // sees it next.
    void write(const std::string& payload);

    const std::string& path() const { return path_; }

private:
    std::uint64_t file_size() const;
    std::string read_range(std::uint64_t begin, std::uint64_t end) const;
    bool read_header(std::uint64_t size);
    [[noreturn]] void damaged(std::uint64_t offset, const std::string& what) const;
    void apply(std::string_view payload, std::uint64_t offset, StoreMap& map) const;

    std::string path_;
    base::UniqueFd fd_;
    pid_t owner_;
    std::uint64_t position_ = 0;  // everything before it has been applied
};

}  // namespace ddp::store
