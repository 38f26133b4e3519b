#include "contract/control_page.hpp"

#include "base/allocate.hpp"
#include "base/random.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace ddp::contract {
namespace {

std::size_t bytes_of_rank(std::size_t timeline_entries) {
    return control_page_bytes + Timeline::bytes_for(timeline_entries);
}

std::size_t region_bytes(int local_ranks, std::size_t timeline_entries) {
    return control_header_bytes +
           bytes_of_rank(timeline_entries) * static_cast<std::size_t>(local_ranks);
}

std::byte* map_shared(int fd, std::size_t bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

std::string to_hex(std::uint64_t value) {
    char text[17];
    const auto end = std::to_chars(text, text + sizeof text, value, 16).ptr;
    return {text, end};
}

struct Handover {
    int fd;
    std::uint64_t cookie;
    std::size_t timeline_entries = 0;
};

std::optional<Handover> parse_handover(std::string_view text) {
    Handover result{-1, 0};
    const char* const end = text.data() + text.size();
    const auto fd = std::from_chars(text.data(), end, result.fd);
    if (fd.ec != std::errc{} || fd.ptr == end || *fd.ptr != ':') return std::nullopt;
    const auto cookie = std::from_chars(fd.ptr + 1, end, result.cookie, 16);
    if (cookie.ec != std::errc{} || result.fd < 3) return std::nullopt;
    if (cookie.ptr == end) return result;
    if (*cookie.ptr != ':') return std::nullopt;
    const auto entries = std::from_chars(cookie.ptr + 1, end, result.timeline_entries);
    const bool is_plausible =
        result.timeline_entries > 0 && result.timeline_entries <= max_timeline_entries;
    if (entries.ec != std::errc{} || entries.ptr != end || !is_plausible) return std::nullopt;
    return result;
}

// The pages of a region behind a descriptor: nothing when it cannot be one that an agent made. A
// memory that somebody may still cut short would be a SIGBUS later.
std::optional<int> ranks_in_region(int fd, std::size_t timeline_entries) {
    struct stat status {};
    if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return std::nullopt;
    const auto of_rank = static_cast<off_t>(bytes_of_rank(timeline_entries));
    const off_t of_ranks = status.st_size - static_cast<off_t>(control_header_bytes);
    const off_t ranks = of_ranks / of_rank;
    if (of_ranks % of_rank != 0 || ranks < 1 || ranks > max_control_ranks) return std::nullopt;
    return static_cast<int>(ranks);
}

// Whether the mapping is what its maker says: another program may have reused the descriptor.
bool is_plausible(const ControlHeader& header, std::uint64_t cookie, int local_ranks) {
    return header.magic == control_magic && header.version == control_version &&
           header.page_bytes == control_page_bytes && header.cookie == cookie &&
           header.local_ranks == static_cast<std::uint32_t>(local_ranks);
}

struct AgentRegions {
    std::mutex mutex;
    std::map<std::pair<std::string, int>, std::shared_ptr<ControlRegion>> regions;
};

// Never destroyed: a destructor of the program's may still ask for the lease.
AgentRegions& agent_regions() {
    static auto& agents = *new AgentRegions;
    return agents;
}

}  // namespace

ControlRegion ControlRegion::create(int local_ranks, std::size_t timeline_entries) {
    ControlRegion region;
    region.bytes_ = region_bytes(local_ranks, timeline_entries);
    region.timeline_entries_ = timeline_entries;
    region.fd_.reset(::memfd_create("ddp-control", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!region.fd_) throw SystemError("memfd_create for the control region", errno);
    const int fd = region.fd_.get();
    if (const int rc = base::allocate(fd, region.bytes_); rc != 0) {
        throw SystemError(
            "allocate " + std::to_string(region.bytes_) + " bytes for the control region", rc);
    }
    ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    region.memory_ = map_shared(fd, region.bytes_);
    if (region.memory_ == nullptr) throw SystemError("map the control region", errno);
    auto* const header = new (region.memory_) ControlHeader{};
    header->magic = control_magic;
    header->version = control_version;
    header->local_ranks = static_cast<std::uint32_t>(local_ranks);
    header->page_bytes = control_page_bytes;
    header->cookie = base::random_bits();
    region.local_ranks_ = local_ranks;
    region.cookie_ = header->cookie;
    region.shared_ = true;
    return region;
}

ControlRegion ControlRegion::attach(const std::optional<std::string>& handed_over, int local_rank) {
    if (const auto given = handed_over ? parse_handover(*handed_over) : std::nullopt) {
        const auto ranks = ranks_in_region(given->fd, given->timeline_entries);
        if (ranks && local_rank >= 0 && local_rank < *ranks) {
            ControlRegion region;
            region.bytes_ = region_bytes(*ranks, given->timeline_entries);
            region.timeline_entries_ = given->timeline_entries;
            region.memory_ = map_shared(given->fd, region.bytes_);
            if (region.memory_ != nullptr && is_plausible(region.header(), given->cookie, *ranks)) {
                ::close(given->fd);
                region.local_ranks_ = *ranks;
                region.cookie_ = given->cookie;
                region.own_ = local_rank;
                region.shared_ = true;
                return region;
            }
        }
    }
    ControlRegion alone = create(1);
    alone.fd_.reset();
    alone.shared_ = false;
    return alone;
}

ControlRegion::ControlRegion(ControlRegion&& other) noexcept
    : fd_(std::move(other.fd_)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      timeline_entries_(other.timeline_entries_),
      local_ranks_(other.local_ranks_),
      cookie_(other.cookie_),
      own_(other.own_),
      shared_(other.shared_) {}

ControlRegion& ControlRegion::operator=(ControlRegion&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(timeline_entries_, other.timeline_entries_);
    std::swap(local_ranks_, other.local_ranks_);
    std::swap(cookie_, other.cookie_);
    std::swap(own_, other.own_);
    std::swap(shared_, other.shared_);
    return *this;
}

ControlRegion::~ControlRegion() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

ControlHeader& ControlRegion::header() const {
    return *std::launder(reinterpret_cast<ControlHeader*>(memory_));
}

ControlPage& ControlRegion::page(int local_rank) const {
    const std::size_t offset =
        control_header_bytes + control_page_bytes * static_cast<std::size_t>(local_rank);
    return *std::launder(reinterpret_cast<ControlPage*>(memory_ + offset));
}

Timeline ControlRegion::timeline(int local_rank) const {
    if (timeline_entries_ == 0) return {};
    std::byte* const ring =
        memory_ + region_bytes(local_ranks_, 0) +
        Timeline::bytes_for(timeline_entries_) * static_cast<std::size_t>(local_rank);
    auto& head = *std::launder(reinterpret_cast<TimelineHead*>(ring));
    auto* const entries =
        std::launder(reinterpret_cast<TimelineEntry*>(ring + sizeof(TimelineHead)));
    return {head, {entries, timeline_entries_}};
}

std::string ControlRegion::handover(int fd_in_child) const {
    return std::to_string(fd_in_child) + ":" + to_hex(cookie_) +
           (timeline_entries_ == 0 ? "" : ":" + std::to_string(timeline_entries_));
}

bool ControlRegion::lease_holds(std::chrono::steady_clock::time_point now) const {
    const std::chrono::nanoseconds end(header().lease_end_ns.load(std::memory_order_relaxed));
    return end.count() == 0 || end > now.time_since_epoch() + lease_margin;
}

std::shared_ptr<ControlRegion> region_of_process(const std::optional<std::string>& handed_over,
                                                 int local_rank) {
    AgentRegions& agents = agent_regions();
    const std::pair key(handed_over.value_or(""), local_rank);
    const std::lock_guard lock(agents.mutex);
    if (const auto found = agents.regions.find(key); found != agents.regions.end()) {
        return found->second;
    }
    auto region = std::make_shared<ControlRegion>(ControlRegion::attach(handed_over, local_rank));
    if (region->shared()) agents.regions.emplace(key, region);
    return region;
}

bool lease_holds() {
    AgentRegions& agents = agent_regions();
    const std::lock_guard lock(agents.mutex);
    const auto now = std::chrono::steady_clock::now();
    return std::all_of(agents.regions.begin(), agents.regions.end(),
                       [&](const auto& entry) { return entry.second->lease_holds(now); });
}

}  // namespace ddp::contract
