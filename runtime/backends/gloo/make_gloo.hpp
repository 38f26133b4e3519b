// The door to the Gloo backend. Two sources stand behind it: make_gloo.cpp, or gloo_absent.cpp in a
// build without libgloo; nothing else of ddp knows which.
#pragma once

#include "backends/backend.hpp"
#include "base/deadline.hpp"

#include <ddp/master_address.hpp>
#include <ddp/store.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace ddp::gloo {

// Why this build has no Gloo; empty when it has.
std::string refusal_of_build();

struct Group {
    int rank = 0;
    int ranks = 1;
    ddp::Store* store = nullptr;          // not used in a world of one
    bool on_one_host = true;              // all ranks
    std::optional<MasterAddress> master;  // tells the network to use between hosts
    std::span<const int> job_ranks = {};  // by rank in the group; empty: the same
    const std::atomic<std::uint32_t>* agent_abort = nullptr;  // the control region's, or null
};

// Collective: connects each rank to each. Throws UsageError, TimeoutError, BackendError; the other
// ranks then wait until the deadline, so agree on the outcome afterwards.
std::unique_ptr<backends::Backend> make_backend(const Group& group, const base::Deadline& deadline);

}  // namespace ddp::gloo
