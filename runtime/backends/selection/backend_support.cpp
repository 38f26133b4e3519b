#include "backends/selection/backend_support.hpp"

#include "base/printable.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>

namespace ddp::backends {
namespace {

// Set by each rank when it comes, and when it knows what it can have.
std::string here_key(int rank) { return "backend/here/" + std::to_string(rank); }
const std::string wants_prefix = "backend/rank/";

// Looks without waiting: the deadline has passed already.
bool is_here(const GroupContext& group, int rank) {
    try {
        group.store->get(here_key(rank), std::chrono::milliseconds{0});
        return true;
    } catch (const TimeoutError&) {
        return false;
    }
}

std::vector<int> list_missing(const GroupContext& group) {
    if (!is_here(group, group.me.rank)) throw Error("the store has lost its keys");
    std::vector<int> missing;
    for (int rank = 0; rank < group.me.world_size; ++rank) {
        if (!is_here(group, rank)) missing.push_back(rank);
    }
    return missing;
}

std::string describe_missing(const std::vector<int>& missing, int world_size) {
    if (missing.empty()) return "a rank came, but then said no more";
    std::string ranks;
    for (const int rank : missing) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    return (missing.size() == 1 ? "rank " : "ranks ") + ranks + " of " +
           std::to_string(world_size) + " did not come";
}

std::string short_host(const BackendSupport& one) { return one.host.substr(0, one.host.find('/')); }

}  // namespace

RequestedBackend RequestedBackend::decode(std::uint32_t number) {
    const std::uint32_t wanted = number & 0xff;
    const std::uint32_t gpu = number >> 8;
    if (wanted > static_cast<std::uint32_t>(ddp::Backend::hierarchical) ||
        gpu > static_cast<std::uint32_t>(GpuState::usable)) {
        throw UsageError("init_process_group: what a rank wants is damaged (" +
                         std::to_string(number) +
                         "); did somebody else write into the store or the shared memory?");
    }
    return {static_cast<ddp::Backend>(wanted), static_cast<GpuState>(gpu)};
}

BackendSupport BackendSupport::decode(const std::string& text) {
    std::uint32_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    const auto first = static_cast<std::size_t>(stop - text.data());
    const std::size_t second = text.find('\n', first + 1);
    const std::size_t third = second == text.npos ? text.npos : text.find('\n', second + 1);
    if (error != std::errc{} || stop == end || *stop != '\n' || third == text.npos) {
        throw UsageError("init_process_group: what a rank says of itself is damaged (\"" +
                         one_line(text) + "\"); did somebody else write into the store?");
    }
    return {RequestedBackend::decode(number), one_line(text.substr(first + 1, second - first - 1)),
            one_line(text.substr(second + 1, third - second - 1)),
            one_line(text.substr(third + 1))};
}

std::string one_line(std::string_view text) {
    constexpr std::size_t most = 1000;
    std::string line(text.substr(0, most));
    std::replace(line.begin(), line.end(), '\n', ' ');
    return base::printable(line) + (text.size() > most ? "..." : "");
}

void announce_arrival(const GroupContext& group) { group.store->set(here_key(group.me.rank), ""); }

void throw_missing(const GroupContext& group, const base::Deadline& deadline) {
    std::string who;
    std::optional<int> culprit;
    try {
        const std::vector<int> missing = list_missing(group);
        who = describe_missing(missing, group.me.world_size);
        if (!missing.empty()) culprit = group.job_rank(missing.front());
    } catch (const Error&) {
        who = "the store stopped answering (is who serves it stopped: the launcher, or rank 0?)";
    }
    throw TimeoutError("init_process_group: " + who + " within " +
                           base::to_string(deadline.timeout()) + " (seen from rank " +
                           std::to_string(group.me.rank) + " of " +
                           std::to_string(group.me.world_size) + "); did all workers start?",
                       culprit);
}

StoreValues exchange(const GroupContext& group, const std::string& prefix, const std::string& mine,
                     const base::Deadline& deadline) {
    group.store->set(prefix + std::to_string(group.me.rank), mine);
    StoreKeys keys;
    for (int rank = 0; rank < group.me.world_size; ++rank) {
        keys.push_back(prefix + std::to_string(rank));
    }
    try {
        return group.store->multi_get(keys, deadline.left());
    } catch (const TimeoutError&) {
        throw_missing(group, deadline);
    }
}

std::vector<BackendSupport> exchange(const GroupContext& group, const BackendSupport& mine,
                                     const base::Deadline& deadline) {
    std::vector<BackendSupport> all;
    for (const std::string& text : exchange(group, wants_prefix, mine.encode(), deadline)) {
        all.push_back(BackendSupport::decode(text));
    }
    return all;
}

void require_same_request(const std::vector<BackendSupport>& all) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank].request.wanted == all[0].request.wanted) continue;
        throw UsageError("init_process_group: rank 0 asks for backend " +
                         std::string(ddp::to_string(all[0].request.wanted)) + ", rank " +
                         std::to_string(rank) + " for " + ddp::to_string(all[rank].request.wanted) +
                         "; all ranks must ask for the same");
    }
}

std::string list_refusals(const std::vector<BackendSupport>& all,
                          std::string BackendSupport::*refusal) {
    std::string refusals;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if ((all[rank].*refusal).empty()) continue;
        refusals += (refusals.empty() ? "" : "; ") + std::string("rank ") + std::to_string(rank) +
                    " on host " + short_host(all[rank]) + ": " + all[rank].*refusal;
    }
    return refusals;
}

void throw_refused(ddp::Backend backend, const std::string& refusals,
                   const std::string& shm_refusals) {
    throw UsageError("init_process_group: backend " + std::string(ddp::to_string(backend)) +
                     " cannot be had: " + refusals +
                     (shm_refusals.empty() ? "" : "; nor shm: " + shm_refusals));
}

}  // namespace ddp::backends
