#include "standin_nccl/region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>

namespace stand_in {

namespace {
// The id's bytes.
struct Name {
    std::uint64_t magic;
    std::uint64_t cookie;
    pid_t pid;
    int fd;
};
constexpr std::uint64_t name_magic = 0x737461'6e64696eULL;
static_assert(sizeof(Name) <= NCCL_UNIQUE_ID_BYTES);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

Name name_of(const ncclUniqueId& id) {
    Name name{};
    std::memcpy(&name, id.internal, sizeof name);
    return name;
}

struct Open {
    std::mutex mutex;
    std::map<std::uint64_t, int> fds;                         // of ids made here, by cookie
    std::map<std::uint64_t, std::weak_ptr<Region>> mappings;  // by cookie
};

Open& open() {
    static Open* const only = new Open;  // threads of ours may outlive static objects
    return *only;
}

std::uint64_t new_cookie() {
    std::random_device random;
    return (std::uint64_t{random()} << 32U | random()) | 1U;  // never 0, as fresh memory is
}

Region* map(int fd) {
    void* const memory = ::mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<Region*>(memory);
}
}  // namespace

ncclUniqueId make_region() {
    const int fd = ::memfd_create("stand-in-nccl", MFD_CLOEXEC);
    if (fd < 0) throw std::runtime_error(std::string("memfd_create: ") + std::strerror(errno));
    Region* region = nullptr;
    if (::ftruncate(fd, sizeof(Region)) == 0) region = map(fd);
    if (region == nullptr) {
        const std::string why = std::string("memfd: ") + std::strerror(errno);
        ::close(fd);
        throw std::runtime_error(why);
    }
    const Name name{name_magic, new_cookie(), ::getpid(), fd};
    region->cookie = name.cookie;
    ::munmap(region, sizeof(Region));
    {
        const std::lock_guard lock(open().mutex);
        open().fds.emplace(name.cookie, fd);
    }
    ncclUniqueId id{};
    std::memcpy(id.internal, &name, sizeof name);
    return id;
}

std::shared_ptr<Region> open_region(const ncclUniqueId& id, const char*& why) {
    const Name name = name_of(id);
    why = "not an id of ncclGetUniqueId";
    if (name.magic != name_magic) return nullptr;
    const std::lock_guard lock(open().mutex);
    std::weak_ptr<Region>& known = open().mappings[name.cookie];
    if (auto region = known.lock()) return region;
    const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.fd);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    why = "the process that made the id is gone, or has closed it";
    if (fd < 0) return nullptr;
    Region* const memory = map(fd);
    ::close(fd);
    if (memory == nullptr) return nullptr;
    const auto unmap = [](Region* region) { ::munmap(region, sizeof(Region)); };
    std::shared_ptr<Region> region(memory, unmap);
    if (region->cookie != name.cookie) return nullptr;
    known = region;
    return region;
}

void forget_id(const ncclUniqueId& id) {
    const std::lock_guard lock(open().mutex);
    const auto found = open().fds.find(name_of(id).cookie);
    if (found == open().fds.end()) return;
    ::close(found->second);
    open().fds.erase(found);
    std::erase_if(open().mappings, [](const auto& entry) { return entry.second.expired(); });
}

}  // namespace stand_in
