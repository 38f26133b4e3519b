// Records in a file. A writer may die at any byte: its record then reaches beyond the end of the
// file, or ends there with a wrong checksum, and counts as never written. Invariant: a record is
// applied once, whole, in file order.
#include "store/file/file_log.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "store/wire.hpp"

namespace ddp::store {
namespace {

constexpr std::string_view header{"ddp file store\n\x01", 16};
constexpr std::size_t record_header_bytes = 2 * sizeof(std::uint32_t);
constexpr std::uint64_t read_step_bytes = std::uint64_t{4} << 20;
constexpr std::chrono::microseconds first_lock_pause{50};
constexpr std::chrono::microseconds longest_lock_pause{10'000};

// CRC-32 as in zlib, which this room does not link.
constexpr std::array<std::uint32_t, 256> crc_table = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
        std::uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
        table[i] = crc;
    }
    return table;
}();

std::uint32_t crc32(std::string_view bytes) {
    std::uint32_t crc = 0xFFFFFFFFU;
    for (const char byte : bytes) {
        crc = (crc >> 8) ^ crc_table[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU];
    }
    return ~crc;
}

}  // namespace

void append_change(std::string& payload, ChangeKind kind, const std::string& key,
                   std::string_view value) {
    append_u8(payload, static_cast<std::uint8_t>(kind));
    append_bytes(payload, key);
    append_bytes(payload, value);
}

FileLog::FileLog(std::string path)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)),
      owner_(::getpid()) {
    if (!fd_) throw SystemError{"store: open " + path_, errno};
}

FileLog::Lock::~Lock() {
    if (fd_ >= 0) ::flock(fd_, LOCK_UN);
}

FileLog::Lock FileLog::lock(Access access, const base::Deadline& deadline) {
    if (::getpid() != owner_) {
        throw UsageError{"store: this handle on " + path_ +
                         " was made before a fork; open the file anew in the child"};
    }
    const int kind = access == Access::read ? LOCK_SH : LOCK_EX;
    for (auto pause = first_lock_pause; ::flock(fd_.get(), kind | LOCK_NB) != 0;
         pause = std::min(2 * pause, longest_lock_pause)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            throw SystemError{"store: lock " + path_, errno};
        if (deadline.passed()) {
            throw TimeoutError{"store: others held the lock of " + path_ + " for " +
                               base::to_string(deadline.timeout())};
        }
        std::this_thread::sleep_for(pause);
    }
    return Lock{fd_.get()};
}

void FileLog::read_new(StoreMap& map) {
    const auto size = file_size();
    if (size < position_) damaged(size, "it has become shorter");
    if (position_ == 0 && !read_header(size)) return;
    while (size - position_ >= record_header_bytes) {
        // At least the next record, at best many of them.
        const auto first = read_range(position_, position_ + record_header_bytes);
        const auto need = record_header_bytes + std::uint64_t{read_u32(first)};
        if (need > size - position_) return;  // half-written
        const auto step =
            std::max<std::uint64_t>(need, std::min(read_step_bytes, size - position_));
        const auto bytes = read_range(position_, position_ + step);
        std::string_view rest{bytes};
        while (rest.size() >= record_header_bytes) {
            const auto length = read_u32(rest);
            if (length > rest.size() - record_header_bytes) break;
            const auto payload = rest.substr(record_header_bytes, length);
            const auto end = position_ + record_header_bytes + length;
            if (crc32(payload) != read_u32(rest.substr(sizeof(std::uint32_t)))) {
                if (end == size) return;  // half-written
                damaged(position_, "wrong checksum");
            }
            apply(payload, position_, map);
            position_ = end;
            rest.remove_prefix(record_header_bytes + length);
        }
    }
}

void FileLog::write(const std::string& payload) {
    std::string record;
    if (position_ == 0) record = header;
    append_u32(record, static_cast<std::uint32_t>(payload.size()));
    append_u32(record, crc32(payload));
    record += payload;
    if (file_size() > position_ && ::ftruncate(fd_.get(), static_cast<off_t>(position_)) != 0) {
        throw SystemError{"store: cutting a half-written record off " + path_, errno};
    }
    for (std::size_t done = 0; done < record.size();) {
        const auto count = ::pwrite(fd_.get(), record.data() + done, record.size() - done,
                                    static_cast<off_t>(position_ + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw SystemError{"store: write to " + path_, errno};
        done += static_cast<std::size_t>(count);
    }
}

std::uint64_t FileLog::file_size() const {
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) throw SystemError{"store: fstat " + path_, errno};
    return static_cast<std::uint64_t>(status.st_size);
}

std::string FileLog::read_range(std::uint64_t begin, std::uint64_t end) const {
    std::string bytes(end - begin, '\0');
    for (std::size_t done = 0; done < bytes.size();) {
        const auto count = ::pread(fd_.get(), bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(begin + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw SystemError{"store: read " + path_, errno};
        if (count == 0) damaged(begin + done, "it ends early");
        done += static_cast<std::size_t>(count);
    }
    return bytes;
}

// False: there is none yet, or only the beginning of one.
bool FileLog::read_header(std::uint64_t size) {
    const auto there = std::min<std::uint64_t>(size, header.size());
    if (!header.starts_with(read_range(0, there))) damaged(0, "it is not a ddp file store");
    if (there < header.size()) return false;
    position_ = header.size();
    return true;
}

void FileLog::damaged(std::uint64_t offset, const std::string& what) const {
    throw SystemError{"store: " + path_ + " is damaged at byte " + std::to_string(offset) + ": " +
                          what + "; use a fresh file",
                      EBADMSG};
}

void FileLog::apply(std::string_view payload, std::uint64_t offset, StoreMap& map) const {
    const auto take = [&](std::uint64_t count) {
        if (count > payload.size()) damaged(offset, "a change reaches beyond its record");
        const auto taken = payload.substr(0, count);
        payload.remove_prefix(count);
        return taken;
    };
    const auto take_string = [&] { return std::string{take(read_u64(take(8)))}; };
    while (!payload.empty()) {
        const auto kind = static_cast<ChangeKind>(take(1)[0]);
        const auto key = take_string();
        const auto value = take_string();
        switch (kind) {
            case ChangeKind::set:
                map.set(key, value);
                continue;
            case ChangeKind::append:
                map.append(key, value);
                continue;
            case ChangeKind::erase:
                map.erase(key);
                continue;
        }
        damaged(offset, "unknown change");
    }
}

}  // namespace ddp::store
