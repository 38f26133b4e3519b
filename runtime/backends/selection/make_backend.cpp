#include "backends/selection/make_backend.hpp"

#include "backends/gloo/make_gloo.hpp"
#include "backends/hierarchical/host_layout.hpp"
#include "backends/hierarchical/make_hierarchical.hpp"
#include "backends/selection/backend_support.hpp"
#include "backends/selection/device_half.hpp"
#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/shm_backend.hpp"
#include "backends/shm/tuning_file.hpp"
#include "backends/shm/wait/waiter.hpp"
#include "base/log.hpp"
#include "base/net/socket.hpp"
#include "base/unique_fd.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

namespace ddp::backends {
namespace {

constexpr int lowest_rank = 0;
const std::string region_key = "shm/region";

// Set by each rank that cannot have shm, for those who wait in the region.
const std::string no_shm_key = "backend/no_shm";
const std::string gloo_prefix = "backend/gloo/";
// Of the groups that the ranks of a host are, and why they cannot be.
const std::string host_prefix = "backend/host/";
const std::string local_prefix = "backend/local/";

// With what tells two machines apart that have the same name. Not by a stream: to prepare the first
// one of a process takes longer than to read this.
std::string host_id() {
    const char* const given = std::getenv("DDP_HOST_ID");
    if (given != nullptr && *given != '\0') return one_line(given);
    std::array<char, 64> boot_id{};
    const base::UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    const ssize_t got = file ? ::read(file.get(), boot_id.data(), boot_id.size()) : 0;
    const std::string_view id(boot_id.data(), static_cast<std::size_t>(got > 0 ? got : 0));
    return base::host_name() + "/" + std::string(id.substr(0, id.find('\n')));
}

std::string shm_refusal_of_foreign_host(const std::string& their_host) {
    return "is on another host than rank 0's (" + their_host.substr(0, their_host.find('/')) + ")";
}

// By the cores that this process may use, and DDP_SHM_TUNING or the system's file.
shm::Tuning tuning_for(const GroupContext& group) {
    const int ranks = group.me.world_size;
    const auto cores = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
    const std::string overrides =
        shm::overrides_for(std::getenv("DDP_SHM_TUNING"), shm::system_tuning_file, ranks, cores);
    if (group.me.rank == lowest_rank && !overrides.empty()) {
        base::log_debug("backends", "shm for " + std::to_string(ranks) + " ranks on " +
                                        std::to_string(cores) + " cores: " + overrides);
    }
    return shm::make_tuning(ranks, cores,
                            std::string(group.among_hosts ? shm::among_hosts : "") + overrides);
}

// Rank 0 makes the region, the others open it. Throws when that fails.
std::shared_ptr<shm::SharedRegion> make_or_open_region(const GroupContext& group,
                                                       const shm::Tuning& tuning,
                                                       const std::string& host,
                                                       const base::Deadline& deadline) {
    if (group.me.rank == lowest_rank) {
        std::shared_ptr<shm::SharedRegion> region;
        std::string address;
        try {
            region = shm::SharedRegion::create(group.me.world_size, tuning);
            address = region->address();
        } catch (const std::exception&) {
            group.store->set(region_key, host + "\n");
            throw;
        }
        group.store->set(region_key, host + "\n" + address);
        return region;
    }
    const std::string published = group.store->get(region_key, deadline.left());
    const std::size_t newline = published.find('\n');
    if (const std::string theirs = published.substr(0, newline); theirs != host) {
        throw UsageError(shm_refusal_of_foreign_host(theirs));
    }
    const std::string address = published.substr(newline + 1);
    if (address.empty()) throw UsageError("has no region to open: rank 0 could not make it");
    return shm::SharedRegion::open(address, group.me.world_size, deadline);
}

std::string why_not(const std::exception& error) { return one_line(error.what()); }

// Beside NCCL, CPU memory is moved as if nothing had been asked for.
ddp::Backend cpu_backend_of(ddp::Backend wanted) {
    return wanted == ddp::Backend::nccl ? ddp::Backend::automatic : wanted;
}

bool may_be_shm(ddp::Backend wanted) {
    const ddp::Backend cpu = cpu_backend_of(wanted);
    return cpu == ddp::Backend::automatic || cpu == ddp::Backend::shm;
}

// Null, and the reason in `refusal`, when this rank cannot have it.
std::shared_ptr<shm::SharedRegion> try_region(const GroupContext& group, const shm::Tuning& tuning,
                                              BackendSupport& mine,
                                              const base::Deadline& deadline) {
    if (group.me.world_size == 1) return shm::SharedRegion::create(1, tuning);
    try {
        auto region = make_or_open_region(group, tuning, mine.host, deadline);
        region->introduce(group.me.rank, mine.request.encode());
        return region;
    } catch (const TimeoutError&) {
        throw_missing(group, deadline);
    } catch (const Error& error) {
        mine.shm_refusal = why_not(error);
        return nullptr;
    }
}

bool another_refuses_shm(const GroupContext& group, const base::Deadline& deadline) {
    try {
        return group.store->check({no_shm_key});
    } catch (const TimeoutError&) {
        throw_missing(group, deadline);
    }
}

// Whether all ranks have come to the region, which is then the group's: all find the same, as a
// rank that has come stays. False once a rank has refused. The store is asked no more than now and
// then, for a rank that comes wakes the ranks that wait for it; soon where ranks may be on other
// hosts, and so refuse. From the last rank on: ranks start in order.
bool all_have_come(const GroupContext& group, const shm::SharedRegion& region,
                   const base::Deadline& deadline) {
    using std::chrono::milliseconds;
    milliseconds pause{group.me.on_one_host ? 20 : 1};
    for (int rank = group.me.world_size - 1; rank >= 0;) {
        if (region.is_introduced(rank, std::min(pause, deadline.left()))) {
            --rank;
            continue;
        }
        if (another_refuses_shm(group, deadline)) return false;
        if (deadline.passed()) throw_missing(group, deadline);
        pause = std::min(2 * pause, milliseconds{200});
    }
    return true;
}

// What all ranks support: from the region where all came there, else from the store.
std::vector<BackendSupport> collect_support(const GroupContext& group,
                                            const shm::SharedRegion* region,
                                            const BackendSupport& mine,
                                            const base::Deadline& deadline) {
    if (group.me.world_size == 1) return {mine};
    if (region == nullptr) {
        group.store->set(no_shm_key, "");
    } else if (all_have_come(group, *region, deadline)) {
        std::vector<BackendSupport> all;
        all.reserve(static_cast<std::size_t>(group.me.world_size));
        for (int rank = 0; rank < group.me.world_size; ++rank) {
            all.push_back({RequestedBackend::decode(region->block(rank).requested_backend),
                           mine.host,
                           {},
                           {}});
        }
        return all;
    }
    return exchange(group, mine, deadline);
}

std::unique_ptr<Backend> make_shm(const GroupContext& group,
                                  std::shared_ptr<shm::SharedRegion> region) {
    // Every rank has it open by now; without the descriptor nobody else can.
    region->close_descriptor();
    return std::make_unique<shm::ShmBackend>(std::move(region), group.me.rank, group.agent_abort,
                                             group.job_ranks);
}

// The ranks of this host, a group of its own.
class LocalGroup {
public:
    LocalGroup(const GroupContext& group, const std::vector<std::size_t>& host_sizes)
        : me_(group.me), agent_abort_(group.agent_abort) {
        const hierarchical::HostLayout layout(host_sizes, static_cast<std::size_t>(me_.rank));
        const hierarchical::RankRange here = layout.mine();
        me_.rank = static_cast<int>(layout.my_index());
        me_.world_size = static_cast<int>(here.count);
        for (std::size_t rank = here.first; rank < here.end(); ++rank) {
            job_ranks_.push_back(group.job_rank(static_cast<int>(rank)));
        }
        const std::shared_ptr<ddp::Store> store(std::shared_ptr<void>(), group.store);
        store_ = make_prefix_store(host_prefix + std::to_string(layout.my_host()), store);
    }
    GroupContext context() const {
        return {.me = me_,
                .store = store_.get(),
                .wanted = ddp::Backend::shm,
                .agent_abort = agent_abort_,
                .job_ranks = job_ranks_,
                .among_hosts = true};
    }

private:
    WorkerEnv me_;
    const std::atomic<std::uint32_t>* agent_abort_;
    std::vector<int> job_ranks_;
    std::shared_ptr<ddp::Store> store_;
};

// Shared memory for the ranks of each host, or null on all ranks when one cannot have it: `why`
// says which.
std::unique_ptr<Backend> make_local(const GroupContext& group,
                                    const std::vector<std::size_t>& host_sizes,
                                    std::vector<BackendSupport> all, std::string& why,
                                    const base::Deadline& deadline) {
    const LocalGroup local(group, host_sizes);
    const GroupContext context = local.context();
    announce_arrival(context);
    BackendSupport mine = all[static_cast<std::size_t>(group.me.rank)];
    std::shared_ptr<shm::SharedRegion> region =
        try_region(context, tuning_for(context), mine, deadline);
    std::unique_ptr<Backend> backend;
    // A region that all have opened, then what is made of it.
    for (const char* const step : {"open/", "made/"}) {
        const StoreValues refusals =
            exchange(group, local_prefix + step, mine.shm_refusal, deadline);
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            all[rank].shm_refusal = one_line(refusals[rank]);
        }
        why = list_refusals(all, &BackendSupport::shm_refusal);
        if (!why.empty()) return nullptr;
        if (backend) break;
        try {
            backend = make_shm(context, std::move(region));
        } catch (const Error& error) {
            mine.shm_refusal = why_not(error);
        }
    }
    return backend;
}

// Shared memory within hosts, if that is wanted and can be had.
struct WithinHosts {
    std::vector<std::size_t> host_sizes;
    std::unique_ptr<Backend> backend;  // null: no
};

WithinHosts make_within_hosts(const GroupContext& group, std::vector<BackendSupport> all,
                              const base::Deadline& deadline) {
    for (BackendSupport& one : all) one.shm_refusal.clear();  // of one host for all
    const ddp::Backend cpu = cpu_backend_of(group.wanted);
    const bool insists = cpu == ddp::Backend::hierarchical;
    if (!insists && cpu != ddp::Backend::automatic) return {};
    std::vector<std::string> hosts;
    hosts.reserve(all.size());
    for (const BackendSupport& one : all) hosts.push_back(one.host);
    std::vector<std::size_t> sizes = hierarchical::sizes_of_hosts(hosts);
    if (insists && sizes.empty()) {
        throw UsageError(
            "init_process_group: backend hierarchical cannot be had: the ranks of a host must "
            "follow each other, and here they do not");
    }
    const bool share_hosts = sizes.size() > 1 && sizes.size() < hosts.size();
    if (!insists && !share_hosts) return {};
    std::string why;
    std::unique_ptr<Backend> backend = make_local(group, sizes, std::move(all), why, deadline);
    if (!backend) {
        if (insists) throw_refused(cpu, why, {});
        if (group.me.rank == lowest_rank) {
            base::log_warn("backends", "gloo also within hosts, as shm cannot be had: " + why);
        }
    }
    return {std::move(sizes), std::move(backend)};
}

// All have it built in; whether they reach each other shows now.
std::unique_ptr<Backend> make_gloo(const GroupContext& group, std::vector<BackendSupport> all,
                                   WithinHosts within, const base::Deadline& deadline) {
    const bool on_one_host = std::all_of(
        all.begin(), all.end(), [&](const BackendSupport& one) { return one.host == all[0].host; });
    std::unique_ptr<Backend> backend;
    std::string refusal;
    try {
        const gloo::Group connected{.rank = group.me.rank,
                                    .ranks = group.me.world_size,
                                    .store = group.store,
                                    .on_one_host = on_one_host,
                                    .master = group.me.master,
                                    .job_ranks = group.job_ranks,
                                    .agent_abort = group.agent_abort};
        backend = within.backend ? hierarchical::make_backend(connected, within.host_sizes,
                                                              std::move(within.backend), deadline)
                                 : gloo::make_backend(connected, deadline);
    } catch (const std::exception& error) {  // Gloo's own too: the others must hear of it
        refusal = why_not(error);
    }
    if (group.me.world_size == 1) return backend;
    const StoreValues refusals = exchange(group, gloo_prefix, refusal, deadline);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        all[rank].other_refusal = refusals[rank];
    }
    const std::string listed = list_refusals(all, &BackendSupport::other_refusal);
    if (!listed.empty()) {
        throw_refused(ddp::Backend::gloo, listed, list_refusals(all, &BackendSupport::shm_refusal));
    }
    return backend;
}

struct Chosen {
    std::unique_ptr<Backend> backend;
    std::vector<GpuState> gpus;  // by rank
};

Chosen agree(const GroupContext& group, std::shared_ptr<shm::SharedRegion> region,
             const BackendSupport& mine, const base::Deadline& deadline) {
    const ddp::Backend cpu = cpu_backend_of(group.wanted);
    const std::vector<BackendSupport> all = collect_support(group, region.get(), mine, deadline);
    require_same_request(all);
    std::vector<GpuState> gpus;
    gpus.reserve(all.size());
    for (const BackendSupport& one : all) gpus.push_back(one.request.gpu);
    const std::string no_shm = list_refusals(all, &BackendSupport::shm_refusal);
    if (region && no_shm.empty()) return {make_shm(group, std::move(region)), gpus};
    if (cpu == ddp::Backend::shm) throw_refused(cpu, no_shm, {});
    const std::string no_gloo = list_refusals(all, &BackendSupport::other_refusal);
    if (!no_gloo.empty()) throw_refused(ddp::Backend::gloo, no_gloo, no_shm);
    region.reset();
    const bool fell_back = cpu == ddp::Backend::automatic && group.me.rank == lowest_rank &&
                           all.front().host == all.back().host;
    if (fell_back) base::log_warn("backends", "gloo on one host, as shm cannot be had: " + no_shm);
    if (group.me.world_size == 1) return {make_gloo(group, all, {}, deadline), gpus};
    WithinHosts within = make_within_hosts(group, all, deadline);
    return {make_gloo(group, all, std::move(within), deadline), gpus};
}

Chosen choose(const GroupContext& group, GpuState gpu, const base::Deadline& deadline) {
    BackendSupport mine{{group.wanted, gpu}, host_id(), {}, {}};
    if (cpu_backend_of(group.wanted) != ddp::Backend::shm) {
        mine.other_refusal = gloo::refusal_of_build();
    }
    std::shared_ptr<shm::SharedRegion> region;
    if (may_be_shm(group.wanted)) {
        // A wrong variable is an error, not a reason for Gloo.
        region = try_region(group, tuning_for(group), mine, deadline);
    } else if (group.me.world_size > 1 && group.me.rank == lowest_rank) {
        group.store->set(region_key, mine.host + "\n");  // for ranks that want something else
    }
    try {
        return agree(group, region, mine, deadline);
    } catch (...) {
        // This rank is in the region already: the others may wait for it there.
        if (region) shm::Waiter::abort(*region, shm::AbortReason::peer_failed, group.me.rank);
        throw;
    }
}

}  // namespace

Halves make_backends(const GroupContext& group, const base::Deadline& deadline) {
    if (group.me.world_size > 1) announce_arrival(group);
    const nccl::GpuSupport mine =
        may_use_gpus(group) ? nccl::find_gpu_support(group.me) : nccl::GpuSupport{};
    Chosen chosen = choose(group, mine.state, deadline);
    Halves halves{std::move(chosen.backend), nullptr, {}};
    auto half = make_device_half(group, mine, chosen.gpus, halves.cpu, deadline);
    halves.device = std::move(half.backend);
    halves.no_device = std::move(half.refusal);
    if (base::log_enabled(base::LogLevel::debug)) {
        base::log_debug("backends", std::string(ddp::to_string(halves.cpu->kind())) +
                                        (halves.device ? " and nccl" : "") + " for " +
                                        std::to_string(group.me.world_size) + " ranks");
    }
    return halves;
}

}  // namespace ddp::backends
