// init_process_group: environment -> store -> control region -> backend -> first barrier.
#include "process_group/process_group_impl.hpp"

#include "backends/make_backend.hpp"
#include "base/log.hpp"
#include "contract/error_file.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <atomic>
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

ProcessGroup join(WorkerEnv me, std::shared_ptr<Store> store, const InitOptions& options,
                  const base::Deadline& deadline) {
    contract::install_terminate_handler();
    base::set_log_name("r" + std::to_string(me.rank));
    contract::ControlRegion control =
        contract::ControlRegion::attach(environment("DDP_CONTROL_FD"), me.local_rank);
    contract::ControlPage& page = control.own_page();
    page.pid.store(::getpid(), std::memory_order_relaxed);
    page.phase.store(static_cast<std::uint32_t>(contract::Phase::joining),
                     std::memory_order_relaxed);
    auto impl = std::make_unique<ProcessGroup::Impl>(std::move(me), std::move(store),
                                                     std::move(control), options.timeout);
    auto backend = backends::make_backend({.me = impl->me,
                                           .store = impl->store.get(),
                                           .wanted = options.backend,
                                           .agent_abort = &impl->control.header().abort_word},
                                          deadline);
    impl->queue = std::make_shared<process_group::OperationQueue>(std::move(backend), page);
    // After it no rank needs the store for this group any more: rank 0 may end and take it along.
    Work(impl->queue->start({.kind = backends::Collective::barrier}, deadline.left())).wait();
    return ProcessGroup(std::move(impl));
}

// Rank 0's store, where no agent serves one: until the process ends, as the port is the job's, and
// another rank may be at its next group while this one still leaves the last.
void serve_store(const MasterAddress& master) {
    static std::mutex mutex;
    static std::map<std::pair<std::string, std::uint16_t>, TcpStoreServer> servers;
    const std::lock_guard lock(mutex);
    const std::pair key(master.host, master.port);
    if (!servers.contains(key)) servers.emplace(key, TcpStoreServer(master));
}

// Keys of its own for each group of the process; the ranks make theirs in the same order.
std::string next_group_prefix(int attempt) {
    static std::atomic<int> groups{0};
    return "ddp/attempt_" + std::to_string(attempt) + "/group_" + std::to_string(groups++);
}

}  // namespace

ProcessGroup init_process_group(const InitOptions& options) {
    const base::Deadline deadline = base::Deadline::after(options.timeout);
    WorkerEnv me = worker_env();
    std::shared_ptr<Store> store;
    if (me.world_size > 1) {
        if (me.rank == 0 && !me.agent_store) serve_store(*me.master);
        store = make_prefix_store(next_group_prefix(me.attempt),
                                  connect_tcp_store(*me.master, deadline.left()));
    }
    return join(std::move(me), std::move(store), options, deadline);
}

ProcessGroup init_process_group(const WorkerEnv& me, std::shared_ptr<Store> store,
                                const InitOptions& options) {
    if (me.rank < 0 || me.rank >= me.world_size) {
        throw UsageError("init_process_group: rank " + std::to_string(me.rank) +
                         " is outside a world of " + std::to_string(me.world_size));
    }
    return join(me, std::move(store), options, base::Deadline::after(options.timeout));
}

}  // namespace ddp
