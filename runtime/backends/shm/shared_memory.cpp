#include "backends/shm/shared_memory.hpp"

#include "base/allocate.hpp"
#include "base/random.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <new>

namespace ddp::shm {
namespace {

constexpr std::size_t page_bytes = 4096;

// What the first page says. The version is that of everything laid out in such memory.
struct Label {
    std::uint64_t magic;
    std::uint64_t version;
    std::uint64_t cookie;
    std::atomic<std::uint32_t> released;
};
constexpr std::uint64_t label_magic = 0x6464705f73686d32;  // "ddp_shm2"
constexpr std::uint64_t label_version = 3;

Label& label_of(std::byte* mapping) { return *std::launder(reinterpret_cast<Label*>(mapping)); }

// The pages are there; page tables are filled by whoever touches them. To fill those of a region at
// once would take each of 16 ranks 2 ms of their start, for slots that many jobs never use.
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

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::create(std::size_t bytes, const std::string& what,
                                                   std::size_t at_once) {
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
    allocate(fd.get(), page_bytes * (1 + std::min(data_pages, pages_of(at_once))));
    if (::ftruncate(fd.get(), static_cast<off_t>(mapped)) != 0) throw SystemError(what, errno);
    ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    std::byte* const mapping = map(fd.get(), mapped);
    auto memory = std::shared_ptr<SharedMemory>(new SharedMemory(std::move(fd), mapping, mapped));
    new (mapping) Label{label_magic, label_version, base::random_bits(), 0};
    if (populate(mapping, page_bytes) != 0) allocate(memory->fd_.get(), mapped);  // all of it now
    memory->handover_ = std::make_unique<RegionHandover>(memory->fd_.get());
    return memory;
}

void SharedMemory::reserve(std::size_t offset, std::size_t bytes) const {
    const std::size_t first = offset / page_bytes * page_bytes;
    const std::size_t count = pages_of(offset + bytes - first) * page_bytes;
    const int code = populate(data() + first, count);
    if (code == 0 || code == EINVAL) return;  // EINVAL: its maker has allocated all of it
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
    return std::to_string(::getpid()) + " " + std::to_string(fd_.get()) + " " +
           std::to_string(label_of(mapping_).cookie) + " " + (handover_ ? handover_->name() : "-");
}

std::shared_ptr<SharedMemory> SharedMemory::open(const std::string& address,
                                                 const base::Deadline& deadline) {
    // Not by a stream: a process pays for its first one at its start.
    pid_t pid = 0;
    int remote_fd = -1;
    std::uint64_t cookie = 0;
    std::array<char, 128> socket{};
    if (std::sscanf(address.c_str(), "%d %d %" SCNu64 " %127s", &pid, &remote_fd, &cookie,
                    socket.data()) != 4) {
        throw UsageError("shm: '" + address + "' is not the address of shared memory");
    }
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(remote_fd);
    base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) fd = receive_region(socket.data(), pid, deadline);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) throw SystemError("shm: stat " + path, errno);
    const auto mapped = static_cast<std::size_t>(status.st_size);
    const std::string refusal = "shm: " + path + " is not the shared memory of this group";
    if (!S_ISREG(status.st_mode) || mapped < page_bytes) throw UsageError(refusal);
    std::byte* const mapping = map(fd.get(), mapped);
    auto memory = std::shared_ptr<SharedMemory>(new SharedMemory({}, mapping, mapped));
    const Label& label = label_of(mapping);
    if (label.magic != label_magic || label.version != label_version || label.cookie != cookie) {
        throw UsageError(refusal);
    }
    return memory;
}

SharedMemory::~SharedMemory() { ::munmap(mapping_, mapped_); }

std::byte* SharedMemory::data() const { return mapping_ + page_bytes; }
std::size_t SharedMemory::bytes() const { return mapped_ - page_bytes; }
std::atomic<std::uint32_t>& SharedMemory::released() const { return label_of(mapping_).released; }

}  // namespace ddp::shm
