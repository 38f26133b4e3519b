// Memory that several processes of one user share: a nameless, sealed memfd, so that nothing is
// left in /dev/shm whatever process dies. One process creates it, others open it by its address;
// once all have it open the descriptor is closed, and no other process can open it. An address
// comes from a store to which others may write. Invariant: memory is mapped only if the kernel says
// that it is this user's, of the process that the address names, and of a size that is sealed.
#pragma once

#include "backends/shm/region/host_kernel.hpp"
#include "backends/shm/region/region_handover.hpp"
#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::shm {

// How another process finds shared memory: "<pid> <fd> <cookie> <socket>".
struct MemoryAddress {
    pid_t creator = 0;
    int fd = -1;
    std::uint64_t cookie = 0;
    std::string socket;  // "-": none

    std::string to_text() const;
    static std::optional<MemoryAddress> parse(std::string_view text);
};

class SharedMemory {
public:
    // Zeroed. Reserves all of it, or the first `reserved_bytes`: the rest must not be touched
    // before reserve(). Throws SystemError that begins with `what` when there is no memory.
    // `receivers`: the processes that may open it, where they are known; else any of this user's.
    static std::shared_ptr<SharedMemory> create(std::size_t bytes, const std::string& what,
                                                std::size_t reserved_bytes = SIZE_MAX,
                                                std::vector<pid_t> receivers = {});
    // From here on all processes that have the memory open can touch these bytes of data(); without
    // it a full host would end them by SIGBUS. Throws SystemError. Any number of times.
    void reserve(std::size_t offset, std::size_t bytes) const;

    // How another process finds it, as MemoryAddress. Valid until close_descriptor.
    std::string address() const;
    // Through /proc/<pid>/fd, else through the socket. Throws SystemError when the creator cannot
    // be reached, UsageError that says why when what is found there is not the memory: another
    // user's, a file, a device, not sealed, of another size than `bytes` (0: any).
    static std::shared_ptr<SharedMemory> open(const std::string& address,
                                              const base::Deadline& deadline, std::size_t bytes = 0,
                                              const HostKernel& kernel = HostKernel::real());
    void close_descriptor();

    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    std::byte* data() const;  // aligned to a page
    std::size_t bytes() const;
    // How many processes have released it.
    std::atomic<std::uint32_t>& released() const;

private:
    SharedMemory(base::UniqueFd fd, std::byte* mapping, std::size_t mapped)
        : fd_(std::move(fd)), mapping_(mapping), mapped_(mapped) {}

    base::UniqueFd fd_;
    std::unique_ptr<RegionHandover> handover_;  // the creator's, until close_descriptor
    std::byte* mapping_;                        // a page that says what it is, then the data
    std::size_t mapped_;
};

}  // namespace ddp::shm
