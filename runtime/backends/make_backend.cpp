#include "backends/make_backend.hpp"

#include "backends/shm/shared_region.hpp"
#include "backends/shm/shm_backend.hpp"
#include "base/log.hpp"

#include <ddp/error.hpp>
#include <ddp/version.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

namespace ddp::backends {
namespace {

constexpr int lowest_rank = 0;
const std::string region_key = "shm/region";

// Set by each rank when it comes, and when it knows what it can have.
std::string here_key(int rank) { return "backend/here/" + std::to_string(rank); }
std::string rank_key(int rank) { return "backend/rank/" + std::to_string(rank); }

std::string host_name() {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

// Tells two machines apart that have the same name.
std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

std::string host_id() { return host_name() + "/" + boot_id(); }

// What one rank publishes: what it wants, and why it cannot have it (empty: it can).
struct Standing {
    ddp::Backend wanted;
    std::string host;
    std::string refusal;

    std::string encode() const {
        return std::to_string(static_cast<int>(wanted)) + "\n" + host + "\n" + refusal;
    }
    static Standing decode(const std::string& text) {
        const std::size_t first = text.find('\n');
        const std::size_t second = text.find('\n', first + 1);
        return {static_cast<ddp::Backend>(std::stoi(text.substr(0, first))),
                text.substr(first + 1, second - first - 1), text.substr(second + 1)};
    }
};

std::string shm_refusal_of_foreign_host(const std::string& their_host) {
    return "is on another host than rank 0's (" + their_host.substr(0, their_host.find('/')) + ")";
}

// The cores that this process may use, and DDP_SHM_TUNING.
shm::Tuning tuning_for(const GroupContext& group) {
    const char* const overrides = std::getenv("DDP_SHM_TUNING");
    return shm::make_tuning(group.me.world_size,
                            static_cast<int>(std::thread::hardware_concurrency()),
                            overrides != nullptr ? overrides : "");
}

// Rank 0 makes the region, the others open it. Throws when that fails.
std::shared_ptr<shm::SharedRegion> meet_in_region(const GroupContext& group,
                                                  const base::Deadline& deadline) {
    if (group.me.rank == lowest_rank) {
        std::shared_ptr<shm::SharedRegion> region;
        std::string address;
        try {
            region = shm::SharedRegion::create(group.me.world_size, tuning_for(group));
            address = region->address();
        } catch (const std::exception&) {
            group.store->set(region_key, host_id() + "\n");
            throw;
        }
        group.store->set(region_key, host_id() + "\n" + address);
        return region;
    }
    const std::string published = group.store->get(region_key, deadline.left());
    const std::size_t newline = published.find('\n');
    if (const std::string host = published.substr(0, newline); host != host_id()) {
        throw UsageError(shm_refusal_of_foreign_host(host));
    }
    const std::string address = published.substr(newline + 1);
    if (address.empty()) throw UsageError("has no region to open: rank 0 could not make it");
    return shm::SharedRegion::open(address, deadline);
}

std::string why_not(const std::exception& error) {
    std::string reason = error.what();
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    return reason;
}

// Looks without waiting: the deadline has passed already.
bool is_here(const GroupContext& group, int rank) {
    try {
        group.store->get(here_key(rank), std::chrono::milliseconds{0});
        return true;
    } catch (const TimeoutError&) {
        return false;
    }
}

std::string list_missing(const GroupContext& group) {
    if (!is_here(group, group.me.rank)) throw Error("the store has lost its keys");
    std::string missing;
    int count = 0;
    for (int rank = 0; rank < group.me.world_size; ++rank) {
        if (is_here(group, rank)) continue;
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
        ++count;
    }
    if (count == 0) return "a rank came, but then said no more";
    return (count == 1 ? "rank " : "ranks ") + missing + " of " +
           std::to_string(group.me.world_size) + " did not come";
}

[[noreturn]] void throw_missing(const GroupContext& group, const base::Deadline& deadline) {
    std::string who;
    try {
        who = list_missing(group);
    } catch (const Error&) {
        who = "the store stopped answering (is who serves it stopped: the launcher, or rank 0?)";
    }
    throw TimeoutError("init_process_group: " + who + " within " +
                       base::to_string(deadline.timeout()) + " (seen from rank " +
                       std::to_string(group.me.rank) + " of " +
                       std::to_string(group.me.world_size) + "); did all workers start?");
}

std::vector<Standing> exchange(const GroupContext& group, const Standing& mine,
                               const base::Deadline& deadline) {
    group.store->set(rank_key(group.me.rank), mine.encode());
    StoreKeys keys;
    for (int rank = 0; rank < group.me.world_size; ++rank) keys.push_back(rank_key(rank));
    try {
        std::vector<Standing> all;
        for (const std::string& text : group.store->multi_get(keys, deadline.left())) {
            all.push_back(Standing::decode(text));
        }
        return all;
    } catch (const TimeoutError&) {
        throw_missing(group, deadline);
    }
}

void require_agreement(const std::vector<Standing>& all) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank].wanted == all[0].wanted) continue;
        throw UsageError("init_process_group: rank 0 asks for backend " +
                         std::string(ddp::to_string(all[0].wanted)) + ", rank " +
                         std::to_string(rank) + " for " + ddp::to_string(all[rank].wanted) +
                         "; all ranks must ask for the same");
    }
    std::string refusals;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].refusal.empty()) continue;
        const std::string host = all[rank].host.substr(0, all[rank].host.find('/'));
        refusals += (refusals.empty() ? "" : "; ") + std::string("rank ") + std::to_string(rank) +
                    " on host " + host + ": " + all[rank].refusal;
    }
    if (refusals.empty()) return;
    const bool automatic = all[0].wanted == ddp::Backend::automatic;
    throw UsageError("init_process_group: backend " +
                     std::string(ddp::to_string(automatic ? ddp::Backend::shm : all[0].wanted)) +
                     " cannot be had: " + refusals +
                     (automatic ? "; this build has no other backend for CPU memory" : ""));
}

// Nothing when this build has it.
std::string refusal_of_build(ddp::Backend wanted) {
    switch (wanted) {
        case ddp::Backend::automatic:
        case ddp::Backend::shm:
            return {};
        case ddp::Backend::gloo:
        case ddp::Backend::nccl:
            return "ddp " + std::string(version()) + " is built without it (it has: shm)";
    }
    return {};
}

}  // namespace

std::unique_ptr<Backend> make_backend(const GroupContext& group, const base::Deadline& deadline) {
    if (group.me.world_size > 1) group.store->set(here_key(group.me.rank), "");
    Standing mine{group.wanted, host_id(), refusal_of_build(group.wanted)};
    std::shared_ptr<shm::SharedRegion> region;
    if (group.me.world_size == 1) {
        require_agreement({mine});
        region = shm::SharedRegion::create(1, tuning_for(group));
    } else if (mine.refusal.empty()) {
        try {
            region = meet_in_region(group, deadline);
            region->block(group.me.rank).pid.store(::getpid(), std::memory_order_release);
        } catch (const TimeoutError&) {
            throw_missing(group, deadline);
        } catch (const Error& error) {
            mine.refusal = why_not(error);
        }
    }
    if (group.me.world_size > 1) require_agreement(exchange(group, mine, deadline));
    // Every rank has it open by now; without the descriptor nobody else can.
    region->close_descriptor();
    if (base::log_enabled(base::LogLevel::debug)) {
        base::log_debug("backends", "shm for " + std::to_string(group.me.world_size) + " ranks");
    }
    return std::make_unique<shm::ShmBackend>(std::move(region), group.me.rank, group.agent_abort,
                                             group.job_ranks);
}

}  // namespace ddp::backends
