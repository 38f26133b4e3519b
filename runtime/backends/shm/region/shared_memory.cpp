#include "backends/shm/region/shared_memory.hpp"

#include "base/allocate.hpp"
#include "base/random.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <new>

namespace ddp::shm {
namespace {

// What the first page says. The version is that of everything laid out in such memory.
struct Label {
    std::uint64_t magic;
    std::uint64_t version;
    std::uint64_t cookie;
    std::atomic<std::uint32_t> released;
};
constexpr std::uint64_t label_magic = 0x6464705f73686d32;  // "ddp_shm2"
constexpr std::uint64_t label_version = 7;

Label& label_of(std::byte* mapping) { return *std::launder(reinterpret_cast<Label*>(mapping)); }

// The pages are allocated; page tables are filled by page faults. To fill those of a region at once
// would take each of 16 ranks 2 ms of their start, for slots that many jobs never use.
std::byte* map(int fd, std::size_t bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        throw SystemError("shm: map " + std::to_string(bytes) + " bytes of shared memory", errno);
    }
    return static_cast<std::byte*>(memory);
}

std::size_t pages_of(std::size_t bytes) {
    return bytes / page_bytes + (bytes % page_bytes != 0 ? 1 : 0);
}

// 0, or why these whole pages cannot be had; EINVAL: the kernel, older than 5.14, cannot do this.
int populate(std::byte* memory, std::size_t bytes) {
    while (::madvise(memory, bytes, MADV_POPULATE_WRITE) != 0) {
        if (errno == EFAULT) return ENOMEM;  // where touching it would be SIGBUS
        if (errno != EINTR && errno != EAGAIN) return errno;
    }
    return 0;
}

// No process can shrink the memory, which would be SIGBUS for those that have mapped it, or lift
// the seals.
constexpr int lasting_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

void require_ours(const HostKernel& kernel, uid_t owner, const std::string& what) {
    const std::string foreign = why_not_ours(kernel, owner);
    if (!foreign.empty()) throw UsageError("shm: " + what + " " + foreign);
}

struct stat stat_of(const HostKernel& kernel, int fd, const std::string& what) {
    struct stat status {};
    const int error = kernel.describe(fd, status);
    if (error != 0) throw SystemError("shm: stat " + what, error);
    return status;
}

// A file or device behind /proc/<pid>/fd is not opened: that alone may do something to it.
void require_nameless_file(const struct stat& status, const std::string& what) {
    if (S_ISREG(status.st_mode) && status.st_nlink == 0) return;
    throw UsageError("shm: " + what + " is " +
                     (S_ISREG(status.st_mode) ? "a file with a name" : "no file at all") +
                     ", not the shared memory of this group");
}

// None where the way there is closed. The folder stays that of the process that was looked at.
base::UniqueFd open_by_proc(const MemoryAddress& where, const HostKernel& kernel) {
    const std::string process = "/proc/" + std::to_string(where.creator);
    const base::UniqueFd folder(::open(process.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return {};
    require_ours(kernel, stat_of(kernel, folder.get(), process).st_uid,
                 "process " + std::to_string(where.creator));
    const std::string name = "fd/" + std::to_string(where.fd);
    const base::UniqueFd place(::openat(folder.get(), name.c_str(), O_PATH | O_CLOEXEC));
    if (!place) return {};
    const std::string what = process + "/" + name;
    require_nameless_file(stat_of(kernel, place.get(), what), what);
    const std::string here = "/proc/self/fd/" + std::to_string(place.get());
    return base::UniqueFd(::open(here.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
}

// Returns the size, label included; `bytes`: without it, 0: any.
std::size_t require_sealed_memory(int fd, const std::string& what, std::size_t bytes,
                                  const HostKernel& kernel) {
    const struct stat status = stat_of(kernel, fd, what);
    require_ours(kernel, status.st_uid, what);
    require_nameless_file(status, what);
    // Huge pages are none until they are touched, which may be SIGBUS.
    struct statfs system {};
    const bool is_memory = ::fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
    const int seals = kernel.seals(fd);
    if (!is_memory || seals < 0 || (seals & lasting_seals) != lasting_seals) {
        throw UsageError("shm: " + what + " is not sealed memory of a fixed size");
    }
    const auto mapped = static_cast<std::size_t>(status.st_size);
    const bool fits = bytes == 0 || (mapped >= page_bytes && mapped - page_bytes == bytes);
    if (mapped < 2 * page_bytes || mapped % page_bytes != 0 || !fits) {
        throw UsageError("shm: " + what + " has " + std::to_string(mapped) +
                         " bytes, another size than the shared memory of this group");
    }
    return mapped;
}

template <class Number>
bool take_number(std::string_view& text, Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end == text.data() + text.size() || *end != ' ') return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
    return true;
}

}  // namespace

std::string MemoryAddress::to_text() const {
    return std::to_string(creator) + " " + std::to_string(fd) + " " + std::to_string(cookie) + " " +
           socket;
}

std::optional<MemoryAddress> MemoryAddress::parse(std::string_view text) {
    MemoryAddress result;
    const bool numbers = take_number(text, result.creator) && take_number(text, result.fd) &&
                         take_number(text, result.cookie);
    if (!numbers || result.creator <= 0 || result.fd < 0) return std::nullopt;
    if (text != "-" && !is_handover_name(text)) return std::nullopt;
    result.socket = text;
    return result;
}

std::shared_ptr<SharedMemory> SharedMemory::create(std::size_t bytes, const std::string& what,
                                                   std::size_t reserved_bytes,
                                                   std::vector<pid_t> receivers) {
    const std::size_t data_pages = pages_of(bytes);
    // A memfd has no size limit of its own: the kernel would hand out pages until it must kill.
    if (data_pages >= static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES))) {
        throw SystemError(what, ENOMEM);
    }
    const std::size_t mapped = (1 + data_pages) * page_bytes;
    base::UniqueFd fd(::memfd_create("ddp-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) throw SystemError(what, errno);
    const auto allocate = [&](int file, std::size_t count) {
        if (const int rc = base::allocate(file, count); rc != 0) throw SystemError(what, rc);
    };
    allocate(fd.get(), page_bytes * (1 + std::min(data_pages, pages_of(reserved_bytes))));
    if (::ftruncate(fd.get(), static_cast<off_t>(mapped)) != 0) throw SystemError(what, errno);
    if (::fcntl(fd.get(), F_ADD_SEALS, lasting_seals) != 0) throw SystemError(what, errno);
    std::byte* const mapping = map(fd.get(), mapped);
    auto memory = std::shared_ptr<SharedMemory>(new SharedMemory(std::move(fd), mapping, mapped));
    new (mapping) Label{label_magic, label_version, base::random_bits(), 0};
    if (populate(mapping, page_bytes) != 0) allocate(memory->fd_.get(), mapped);  // all of it now
    memory->handover_ = std::make_unique<RegionHandover>(memory->fd_.get(), std::move(receivers));
    return memory;
}

void SharedMemory::reserve(std::size_t offset, std::size_t bytes) const {
    const std::size_t first = offset / page_bytes * page_bytes;
    const std::size_t count = pages_of(offset + bytes - first) * page_bytes;
    const int code = populate(data() + first, count);
    if (code == 0 || code == EINVAL) return;  // EINVAL: its creator has allocated all of it
    throw SystemError("shm: " + std::to_string(count) +
                          " bytes more of shared memory; is this host's memory, or the limit of "
                          "its cgroup, used up?",
                      code);
}

void SharedMemory::close_descriptor() {
    handover_.reset();
    fd_.reset();
}

std::string SharedMemory::address() const {
    return MemoryAddress{::getpid(), fd_.get(), label_of(mapping_).cookie,
                         handover_ ? handover_->name() : "-"}
        .to_text();
}

std::shared_ptr<SharedMemory> SharedMemory::open(const std::string& address,
                                                 const base::Deadline& deadline, std::size_t bytes,
                                                 const HostKernel& kernel) {
    const std::optional<MemoryAddress> where = MemoryAddress::parse(address);
    if (!where) throw UsageError("shm: '" + address + "' is not the address of shared memory");
    const std::string what =
        "/proc/" + std::to_string(where->creator) + "/fd/" + std::to_string(where->fd);
    base::UniqueFd fd = open_by_proc(*where, kernel);
    if (!fd && where->socket == "-") throw SystemError("shm: open " + what, ENOENT);
    if (!fd) fd = receive_region(where->socket, where->creator, deadline, kernel);
    const std::size_t mapped = require_sealed_memory(fd.get(), what, bytes, kernel);
    std::byte* const mapping = map(fd.get(), mapped);
    auto memory = std::shared_ptr<SharedMemory>(new SharedMemory({}, mapping, mapped));
    const Label& label = label_of(mapping);
    if (label.magic != label_magic || label.cookie != where->cookie) {
        throw UsageError("shm: " + what + " is not the shared memory of this group");
    }
    if (label.version != label_version) {
        throw UsageError("shm: " + what + " is of another version of ddp (layout " +
                         std::to_string(label.version) + ", here " + std::to_string(label_version) +
                         ")");
    }
    return memory;
}

SharedMemory::~SharedMemory() { ::munmap(mapping_, mapped_); }

std::byte* SharedMemory::data() const { return mapping_ + page_bytes; }
std::size_t SharedMemory::bytes() const { return mapped_ - page_bytes; }
std::atomic<std::uint32_t>& SharedMemory::released() const { return label_of(mapping_).released; }

}  // namespace ddp::shm
