// The control region: memory that an agent shares with its local workers, so that what they do is
// visible and a failure aborts them faster. No result depends on it; but what outlives the job,
// such as a checkpoint, is left alone once the lease in it has ended. One nameless memfd a job
// attempt:
//
//   offset 0              ControlHeader
//   4096 + r * page size  page of local rank r: ControlPage (rank_page.hpp)
//   behind the pages      with --report or --trace: the ring of each (timeline.hpp)
//
// Made by the agent, handed over as DDP_CONTROL_FD=<fd>:<cookie in hex>, with :<entries of a ring>
// behind it where there are rings; and the worker's local rank as DDP_CONTROL_PAGE, as LOCAL_RANK
// may be 0 for all. A worker to whom it is not handed, or whose descriptor was closed or reused,
// makes a private one and goes on.
// All fields are written with relaxed or release stores and read by the agent at any time. Any
// worker may write anything anywhere in it: sizes and indices never come from the memory itself.
#pragma once

#include "base/unique_fd.hpp"
#include "contract/rank_page.hpp"
#include "contract/timeline.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::contract {

inline constexpr std::uint64_t control_magic = 0x6464705f6374726c;  // "ddp_ctrl"
inline constexpr std::uint32_t control_version = 4;
inline constexpr std::size_t control_header_bytes = 4096;
inline constexpr int max_control_ranks = 4096;

struct ControlHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t local_ranks;
    std::uint64_t cookie;
    // 0: go on. Otherwise 1 + the global rank whose failure ends this attempt; set once, by the
    // agent.
    std::atomic<std::uint32_t> abort_word;
    std::uint32_t page_bytes;  // control_page_bytes
    // CLOCK_MONOTONIC in nanoseconds until which this host's workers may act; the agent moves it
    // on. Past it the host may count as lost, and the job run elsewhere. 0: a job of one host,
    // which needs no lease. The agent of several hosts sets it before it starts workers, and never
    // reads it.
    std::atomic<std::int64_t> lease_end_ns;
};
static_assert(sizeof(ControlHeader) <= control_header_bytes);

// What is left of a lease has to last for the system call that it allows.
inline constexpr std::chrono::milliseconds lease_margin{50};

// One mapping. Movable; unmaps when it goes.
class ControlRegion {
public:
    // The agent's: a sealed memfd with a random cookie, and with a ring of that many entries for
    // each rank. Throws SystemError.
    static ControlRegion create(int local_ranks, std::size_t timeline_entries = 0);
    // A worker's: from the value of DDP_CONTROL_FD; when it is absent or not what it says, a
    // private region of one page. Never throws for a bad value. Closes the handed-over descriptor.
    static ControlRegion attach(const std::optional<std::string>& handed_over, int local_rank);

    ControlRegion(ControlRegion&& other) noexcept;
    ControlRegion& operator=(ControlRegion&& other) noexcept;
    ~ControlRegion();

    // How many pages there are: as it was made, whatever the header says by now.
    int local_ranks() const { return local_ranks_; }
    ControlHeader& header() const;
    ControlPage& page(int local_rank) const;
    ControlPage& own_page() const { return page(own_); }  // after attach
    Timeline timeline(int local_rank) const;              // mostly none
    Timeline own_timeline() const { return timeline(own_); }
    bool shared() const { return shared_; }  // with an agent
    // Whether a system call that begins at `now` may change what outlives the job: there is no
    // lease, or it lasts for longer than lease_margin. Always, of a private region.
    bool lease_holds(std::chrono::steady_clock::time_point now) const;

    int fd() const { return fd_.get(); }  // after create: to be inherited
    // "<fd>:<cookie>" for a child in which the region is descriptor `fd_in_child`.
    std::string handover(int fd_in_child) const;

private:
    ControlRegion() = default;
    base::UniqueFd fd_;
    std::byte* memory_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t timeline_entries_ = 0;
    int local_ranks_ = 0;
    std::uint64_t cookie_ = 0;
    int own_ = 0;
    bool shared_ = false;
};

// The region that the agent has handed to this process: attached by the first call, as that closes
// the descriptor, and kept until the process ends. Without an agent a private one, of the caller's
// alone. Any thread.
std::shared_ptr<ControlRegion> region_of_process(const std::optional<std::string>& handed_over,
                                                 int local_rank);
// Whether the lease of the agent's region holds now; true before region_of_process has attached
// one. To be asked right before each system call that changes what outlives the job. Any thread.
bool lease_holds();

}  // namespace ddp::contract
