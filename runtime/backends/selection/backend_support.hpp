// What each rank of a group in the making says of itself, through the store: what it wants and why
// it cannot have it. All read the same, so all decide the same.
#pragma once

#include "backends/selection/device_half.hpp"
#include "backends/selection/make_backend.hpp"
#include "base/deadline.hpp"

#include <ddp/store.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::backends {

using GpuState = nccl::Standing::State;

// What one rank wants, and whether it has a GPU for it: a number in the region's block.
struct Wish {
    ddp::Backend wanted = ddp::Backend::automatic;
    GpuState gpu = GpuState::none;

    std::uint32_t encode() const {
        return static_cast<std::uint32_t>(wanted) | static_cast<std::uint32_t>(gpu) << 8;
    }
    // Throws UsageError for what no rank encodes: others may write where it comes from.
    static Wish decode(std::uint32_t number);
};

// What one rank publishes: its wish, and why it cannot have what CPU memory takes (empty: it can).
struct Standing {
    Wish wish;
    std::string host;
    std::string shm_refusal;
    std::string other_refusal;  // of gloo

    std::string encode() const {
        return std::to_string(wish.encode()) + "\n" + host + "\n" + shm_refusal + "\n" +
               other_refusal;
    }
    // Throws UsageError for what is none.
    static Standing decode(const std::string& text);
};

// As it may be shown: one line of printable characters, not too long.
std::string one_line(std::string_view text);

// Before anything else that may fail: who has not said it counts as missing.
void say_here(const GroupContext& group);

// The values of all ranks under prefix + rank, once all are there. Throws as throw_missing.
StoreValues exchange(const GroupContext& group, const std::string& prefix, const std::string& mine,
                     const base::Deadline& deadline);
std::vector<Standing> exchange(const GroupContext& group, const Standing& mine,
                               const base::Deadline& deadline);

// The deadline has passed: TimeoutError that names the ranks that did not come.
[[noreturn]] void throw_missing(const GroupContext& group, const base::Deadline& deadline);
// UsageError when two ranks ask for different backends.
void require_same_wish(const std::vector<Standing>& all);
// "rank 1 on host b: why"; empty when no rank has one.
std::string list_refusals(const std::vector<Standing>& all, std::string Standing::*refusal);
[[noreturn]] void throw_refused(ddp::Backend backend, const std::string& refusals,
                                const std::string& shm_refusals);

}  // namespace ddp::backends
