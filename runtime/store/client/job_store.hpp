// The store of a job whose ranks all use ddp: the launcher's, or rank 0's. Ranks say which they are
// of which job when they connect, and are refused when that cannot be.
#pragma once

#include <ddp/store.hpp>

#include <memory>

#include "store/admission/job_claims.hpp"
#include "store/admission/peer_check.hpp"

namespace ddp::store {

enum class ServedBy {
    launcher,  // an agent that holds the port for as long as the job runs
    rank_0,    // whoever listens there is looked at, too
};

struct JobStore {
    std::shared_ptr<Store> store;
    // Of this process among those that were this rank, one after the other, in this attempt: keys
    // that hold it are met by the same program of other ranks alone.
    int program = 0;
};

// As connect_tcp_store(). Throws UsageError that names both sides when the store is another job's
// or the rank another process's, or (rank_0) belongs to another user.
JobStore connect_job_store(const MasterAddress& master, const RankClaim& claim, ServedBy server,
                           StorePeers peers, Store::Timeout timeout);

// Rank 0's server, on a thread of its own. Throws UsageError that names the job which has the port
// already, SystemError.
class JobStoreServer {
public:
    // `on_one_host`: all ranks are here; nobody else's connections are let in.
    JobStoreServer(const MasterAddress& master, const RankClaim& rank_0, bool on_one_host,
                   StorePeers peers);
    ~JobStoreServer();
    JobStoreServer(JobStoreServer&&) noexcept;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

// The value of DDP_STORE_PEERS. Throws UsageError.
StorePeers store_peers(const char* value);

}  // namespace ddp::store
