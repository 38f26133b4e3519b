// BackendSupport: what each rank of a group in the making publishes through the store: the backend
// that its program requests, and why this rank cannot have it. Invariant: all ranks read the same,
// so all decide the same.
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

using GpuState = nccl::GpuSupport::State;

// The backend that one rank's program requests, and whether the rank has a GPU for it: a number in
// the region's block.
struct RequestedBackend {
    ddp::Backend wanted = ddp::Backend::automatic;
    GpuState gpu = GpuState::none;

    std::uint32_t encode() const {
        return static_cast<std::uint32_t>(wanted) | static_cast<std::uint32_t>(gpu) << 8;
    }
    // Throws UsageError for a number that no rank encodes: strangers may write to the store.
    static RequestedBackend decode(std::uint32_t number);
};

// What one rank publishes: its request, and why it cannot have what CPU memory takes (empty: it
// can).
struct BackendSupport {
    RequestedBackend request;
    std::string host;
    std::string shm_refusal;
    std::string other_refusal;  // of gloo

    std::string encode() const {
        return std::to_string(request.encode()) + "\n" + host + "\n" + shm_refusal + "\n" +
               other_refusal;
    }
    // Throws UsageError for a text that no rank encodes.
    static BackendSupport decode(const std::string& text);
};

// As it may be shown: one line of printable characters, not too long.
std::string one_line(std::string_view text);

// Before anything else that may fail: a rank that has not announced itself counts as missing.
void announce_arrival(const GroupContext& group);

// The values of all ranks under prefix + rank, once all are there. Throws as throw_missing.
StoreValues exchange(const GroupContext& group, const std::string& prefix, const std::string& mine,
                     const base::Deadline& deadline);
std::vector<BackendSupport> exchange(const GroupContext& group, const BackendSupport& mine,
                                     const base::Deadline& deadline);

// The deadline has passed: TimeoutError that names the ranks that did not come.
[[noreturn]] void throw_missing(const GroupContext& group, const base::Deadline& deadline);
// UsageError when two ranks ask for different backends.
void require_same_request(const std::vector<BackendSupport>& all);
// "rank 1 on host b: why"; empty when no rank has one.
std::string list_refusals(const std::vector<BackendSupport>& all,
                          std::string BackendSupport::*refusal);
[[noreturn]] void throw_refused(ddp::Backend backend, const std::string& refusals,
                                const std::string& shm_refusals);

}  // namespace ddp::backends
