// init_process_group: environment -> store -> control region -> backend -> first barrier.
#include "process_group/process_group_impl.hpp"

#include "base/log.hpp"
#include "base/net/address.hpp"
#include "contract/control_page.hpp"
#include "contract/error_file.hpp"
#include "contract/operation_recorder.hpp"
#include "store/client/job_store.hpp"

#include <ddp/error.hpp>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

namespace ddp {
namespace {

std::optional<std::string> environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

// LOCAL_RANK may be 0 for all of this host.
int page_of(const WorkerEnv& me) {
    const std::string text = environment("DDP_CONTROL_PAGE").value_or("");
    int page = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), page);
    const bool is_one = problem == std::errc{} && end == text.data() + text.size();
    return is_one ? page : me.local_rank;
}

ProcessGroup join(const WorkerEnv& me, std::shared_ptr<Store> store, std::string_view group,
                  const InitOptions& options, const base::Deadline& deadline) {
    contract::install_terminate_handler();
    base::set_log_name("r" + std::to_string(me.rank));
    process_group::GroupMember member(
        me, contract::region_of_process(environment("DDP_CONTROL_FD"), page_of(me)), group);
    contract::take_page(member.page(), member.timeline());
    member.set_phase(contract::Phase::joining);
    const process_group::DispatchOptions dispatch{
        .wanted = options.backend,
        .timeout = options.timeout,
        .requires_gpus = options.backend == Backend::nccl};
    return ProcessGroup(std::make_unique<ProcessGroup::Impl>(std::move(member), std::move(store),
                                                             dispatch, deadline));
}

// Rank 0's store, where no agent serves one: until the process ends, as the port is the job's, and
// another rank may be at its next group while this one still leaves the last.
void serve_store(const MasterAddress& master, bool on_one_host, const store::RankClaim& claim,
                 store::StorePeers peers) {
    static std::mutex mutex;
    static std::map<std::pair<std::string, std::uint16_t>, store::JobStoreServer> servers;
    const std::lock_guard lock(mutex);
    const std::pair key(master.host, master.port);
    if (servers.contains(key)) return;
    servers.emplace(key, store::JobStoreServer(master, claim, on_one_host, peers));
}

// With another launcher's store (torchrun's) the port and who comes there are its business.
store::JobStore connect(const WorkerEnv& me, Store::Timeout timeout) {
    const std::string where = base::host_and_port(me.master->host, me.master->port);
    const bool launchers = me.agent_store && environment("DDP_AGENT_STORE") == where;
    if (me.agent_store && !launchers) return {connect_tcp_store(*me.master, timeout)};
    const store::StorePeers peers = store::store_peers(std::getenv("DDP_STORE_PEERS"));
    const store::RankClaim claim =
        store::claim_of_this_process({.job = me.job,
                                      .attempt = me.round,
                                      .world_size = me.world_size,
                                      .rank = me.rank,
                                      .by_mpi = me.source != WorkerEnvSource::torchrun});
    // Where all ranks are on this host, nothing listens beyond it.
    MasterAddress master = *me.master;
    if (!launchers && me.on_one_host) master.host = "127.0.0.1";
    if (!launchers && me.rank == 0) serve_store(master, me.on_one_host, claim, peers);
    return store::connect_job_store(master, claim,
                                    launchers ? store::ServedBy::launcher : store::ServedBy::rank_0,
                                    peers, timeout);
}

// Of a group whose ranks the launcher does not know, or of one rank.
constexpr std::string_view unrecorded;

// A name, and so keys, of its own for each group of the process; the ranks make theirs in the same
// order.
std::string next_group() {
    static std::atomic<int> groups{0};
    return "group_" + std::to_string(groups++);
}

// A rank's second program in an attempt meets the second programs of the other ranks.
std::string prefix_of(int round, int program, const std::string& group) {
    return "ddp/attempt_" + std::to_string(round) +
           (program == 0 ? "" : "/program_" + std::to_string(program)) + "/" + group;
}

}  // namespace

ProcessGroup init_process_group(const InitOptions& options) {
    const base::Deadline deadline = base::Deadline::after(options.timeout);
    const WorkerEnv me = worker_env();
    if (me.world_size == 1) return join(me, nullptr, unrecorded, options, deadline);
    store::JobStore job = connect(me, deadline.left());
    const std::string group = next_group();
    auto store = make_prefix_store(prefix_of(me.round, job.program, group), std::move(job.store));
    // A world of the program's own making, as by other variables, has another name.
    const std::string where = base::host_and_port(me.master->host, me.master->port);
    return join(me, std::move(store), where + "/" + std::to_string(me.world_size) + "/" + group,
                options, deadline);
}

ProcessGroup init_process_group(const WorkerEnv& me, std::shared_ptr<Store> store,
                                const InitOptions& options) {
    if (me.rank < 0 || me.rank >= me.world_size) {
        throw UsageError("init_process_group: rank " + std::to_string(me.rank) +
                         " is outside a world of " + std::to_string(me.world_size));
    }
    return join(me, std::move(store), unrecorded, options, base::Deadline::after(options.timeout));
}

}  // namespace ddp
