#include "backends/shm/shared_region.hpp"

#include "base/allocate.hpp"
#include "base/random.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <sstream>

namespace ddp::shm {
namespace {

constexpr std::uint64_t region_magic = 0x6464705f73686d31;  // "ddp_shm1"
constexpr std::uint32_t region_version = 1;
constexpr std::size_t page_bytes = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

std::size_t lines_offset() { return round_up(sizeof(RegionHeader), alignof(RankLine)); }

std::size_t slots_offset(std::size_t ranks) {
    return round_up(lines_offset() + ranks * sizeof(RankLine), page_bytes);
}

std::size_t region_bytes(std::size_t ranks, std::size_t slot_bytes) {
    return slots_offset(ranks) + 2 * (ranks + 1) * slot_bytes;
}

std::byte* map(int fd, std::size_t bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        throw SystemError("shm: map " + std::to_string(bytes) + " bytes of shared memory", errno);
    }
    return static_cast<std::byte*>(memory);
}

}  // namespace

std::shared_ptr<SharedRegion> SharedRegion::create(int ranks, std::size_t slot_bytes) {
    const std::size_t bytes = region_bytes(static_cast<std::size_t>(ranks), slot_bytes);
    const std::string what = "shm: " + std::to_string(bytes) + " bytes of shared memory for " +
                             std::to_string(ranks) + " ranks";
    // A memfd has no size limit of its own: the kernel would hand out pages until it must kill.
    if (bytes / page_bytes > static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES))) {
        throw SystemError(what, ENOMEM);
    }
    base::UniqueFd fd(::memfd_create("ddp-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) throw SystemError(what, errno);
    if (const int rc = base::allocate(fd.get(), bytes); rc != 0) {
        throw SystemError(what, rc);
    }
    ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    std::byte* const memory = map(fd.get(), bytes);
    auto* header = new (memory) RegionHeader{};
    header->magic = region_magic;
    header->version = region_version;
    header->ranks = static_cast<std::uint32_t>(ranks);
    header->cookie = base::random_bits();
    header->slot_bytes = slot_bytes;
    auto region = std::shared_ptr<SharedRegion>(new SharedRegion(std::move(fd), memory, bytes));
    if (ranks > 1) region->handover_ = std::make_unique<RegionHandover>(region->fd_.get());
    return region;
}

void SharedRegion::close_descriptor() {
    handover_.reset();
    fd_.reset();
}

std::string SharedRegion::address() const {
    return std::to_string(::getpid()) + " " + std::to_string(fd_.get()) + " " +
           std::to_string(header().cookie) + " " + (handover_ ? handover_->name() : "-");
}

std::shared_ptr<SharedRegion> SharedRegion::open(const std::string& address,
                                                 const base::Deadline& deadline) {
    std::istringstream fields(address);
    pid_t pid = 0;
    int remote_fd = -1;
    std::uint64_t cookie = 0;
    std::string socket;
    if (!(fields >> pid >> remote_fd >> cookie >> socket)) {
        throw UsageError("shm: '" + address + "' is not the address of a shared region");
    }
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(remote_fd);
    base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) fd = receive_region(socket, pid, deadline);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) throw SystemError("shm: stat " + path, errno);
    const auto bytes = static_cast<std::size_t>(status.st_size);
    if (!S_ISREG(status.st_mode) || bytes < sizeof(RegionHeader)) {
        throw UsageError("shm: " + path + " is not the shared region of this group");
    }
    std::byte* const memory = map(fd.get(), bytes);
    auto region = std::shared_ptr<SharedRegion>(new SharedRegion({}, memory, bytes));
    const RegionHeader& header = region->header();
    if (header.magic != region_magic || header.version != region_version ||
        header.cookie != cookie || region_bytes(header.ranks, header.slot_bytes) != bytes) {
        throw UsageError("shm: " + path + " is not the shared region of this group");
    }
    return region;
}

SharedRegion::~SharedRegion() { ::munmap(memory_, bytes_); }

RegionHeader& SharedRegion::header() const {
    return *std::launder(reinterpret_cast<RegionHeader*>(memory_));
}

RankLine& SharedRegion::line(int rank) const {
    std::byte* const at =
        memory_ + lines_offset() + static_cast<std::size_t>(rank) * sizeof(RankLine);
    return *std::launder(reinterpret_cast<RankLine*>(at));
}

std::byte* SharedRegion::slot(int rank, std::uint32_t parity) const {
    const RegionHeader& h = header();
    const std::size_t index = 2 * static_cast<std::size_t>(rank) + parity;
    return memory_ + slots_offset(h.ranks) + index * h.slot_bytes;
}

std::byte* SharedRegion::result(std::uint32_t parity) const {
    return slot(static_cast<int>(header().ranks), parity);
}

}  // namespace ddp::shm
