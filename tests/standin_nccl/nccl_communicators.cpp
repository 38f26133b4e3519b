// NCCL's functions on communicators: their making and their end.
#include "standin_nccl/handle.hpp"

#include <algorithm>
#include <climits>
#include <exception>
#include <string>
#include <thread>

namespace stand_in {

namespace {
constexpr std::chrono::minutes longest_destroy{1};

int current_device() {
    const ddp_host_driver* const driver = find_driver();
    return driver == nullptr ? 0 : driver->current_device();
}

ncclResult_t init(const char* function, ncclComm_t* comm, int ranks, const ncclUniqueId& id,
                  int rank, const ncclConfig_t* config) {
    count_call(function);
    if (comm == nullptr || ranks < 1 || ranks > most_ranks || rank < 0 || rank >= ranks) {
        return failed(ncclInvalidArgument, std::string(function) + ": rank " +
                                               std::to_string(rank) + " of " +
                                               std::to_string(ranks));
    }
    const auto read = read_config(config);
    if (!read) return ncclInvalidArgument;
    const auto fault = knobs().fault(rank, Fault::in_init);
    if (fault && fault->kind == FaultKind::fail) {
        return failed(fault->result, "as the test has asked");
    }
    const Communicator::Seat seat{rank, ranks, current_device(), *read};
    const auto made = std::make_shared<Communicator>(seat, id, std::make_shared<Shared>());
    ncclComm_t const handle = make_handle(made);
    *comm = handle;
    const bool rereads = knobs().version < 21800;  // the caller's variable, until it is up
    made->in_background([self = made.get(), handle, place = rereads ? comm : nullptr] {
        self->bring_up(self->aborted());
        if (place != nullptr && !self->aborted() && *place != handle) {
            (void)misuse("NCCL before 2.18 needs the variable of the communicator until it is up");
        }
    });
    if (in_group()) {
        add_init_to_group(handle);
        return ncclSuccess;
    }
    if (!made->blocks()) return ncclInProgress;
    return finished(Call(function, handle, Needs::life));
}

// From 2.22 on the flags of Abort and Revoke in a group are set at once, the rest is the group's.
bool is_deferred() { return in_group() && knobs().version >= 22203; }

ncclResult_t abort_alone(ncclComm_t comm) {
    Call call("ncclCommAbort", comm, Needs::life);
    if (call.refused()) return call.result();
    while (knobs().fault(call->seat().rank, Fault::in_abort)) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    call->abort();
    // What a revoke has ended already is freed at once.
    for (Backoff backoff; call->is_in_a_graph() && !call->is_revoked();) backoff.pause();
    call->free();
    call.end_handle();
    return ncclSuccess;
}

ncclResult_t revoke_alone(ncclComm_t comm) {
    const Call call("ncclCommRevoke", comm, Needs::life);
    if (call.refused()) return call.result();
    if (call->is_finalized()) return misuse("ncclCommRevoke after Finalize");
    call->revoke();
    if (!call->blocks()) return ncclInProgress;
    for (Backoff backoff; call->poll() == ncclInProgress;) backoff.pause();
    call->allow_children();
    return ncclSuccess;
}

ncclResult_t stop_now_and_end(const char* function, ncclComm_t comm, End end) {
    const Call call(function, comm, Needs::flags);
    if (call.refused()) return call.result();
    call->stop(end == abort_alone);
    add_end_to_group(comm, end);
    return ncclSuccess;
}

void wait_for_all(const Call& call) {
    const auto end = std::chrono::steady_clock::now() + longest_destroy;
    for (Backoff backoff;
         !call->is_quiescent() && (!call->is_stopped() || call->is_in_a_graph());) {
        if (std::chrono::steady_clock::now() > end) {
            (void)misuse("a rank has not come to Finalize or Destroy within 60 s");
            return;
        }
        backoff.pause();
    }
}
}  // namespace

}  // namespace stand_in

using stand_in::Call;
using stand_in::Communicator;
using stand_in::failed;
using stand_in::Fault;
using stand_in::misuse;
using stand_in::Needs;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    stand_in::count_call("ncclGetUniqueId");
    if (id == nullptr) return failed(ncclInvalidArgument, "ncclGetUniqueId: null");
    if (const auto fault = stand_in::knobs().fault(0, Fault::in_id)) {
        return failed(fault->result, "as the test has asked");
    }
    try {
        *id = stand_in::make_region();
    } catch (const std::exception& error) {
        return failed(ncclSystemError, error.what());
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
    return stand_in::init("ncclCommInitRank", comm, nranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    return stand_in::init("ncclCommInitRankConfig", comm, nranks, id, rank, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    const Call call("ncclCommFinalize", comm, Needs::readiness);
    if (call.refused()) return call.result();
    if (call->is_revoked()) return misuse("ncclCommFinalize after Revoke");
    if (call->is_finalized()) return misuse("ncclCommFinalize twice");
    call->finalize();
    if (!call->blocks()) return ncclInProgress;
    stand_in::wait_for_all(call);
    return call->aborted() ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    stand_in::count_call("ncclCommDestroy");
    if (comm == nullptr) return ncclSuccess;
    Call call("ncclCommDestroy", comm, Needs::life);
    if (call.refused()) return call.result();
    if (call->is_in_progress()) return misuse("ncclCommDestroy in progress: Abort ends that");
    if (!call->is_stopped() && call->has_work()) {
        return misuse("ncclCommDestroy with work in flight: Finalize or wait, or Abort");
    }
    const bool came_up = call->region() != nullptr;
    if (came_up && !call->is_stopped() && call->error() == ncclSuccess) {
        call->finalize();
        stand_in::wait_for_all(call);
    }
    call->leave();
    call.end_handle();
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (comm == nullptr) return ncclSuccess;
    if (stand_in::is_deferred()) {
        return stand_in::stop_now_and_end("ncclCommAbort", comm, stand_in::abort_alone);
    }
    return stand_in::abort_alone(comm);
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
    if (revokeFlags != NCCL_REVOKE_DEFAULT) {
        return failed(ncclInvalidArgument, "ncclCommRevoke: flags have to be 0");
    }
    if (stand_in::is_deferred()) {
        return stand_in::stop_now_and_end("ncclCommRevoke", comm, stand_in::revoke_alone);
    }
    return stand_in::revoke_alone(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
    const Call call("ncclCommGetAsyncError", comm, Needs::life);
    if (call.refused()) return call.result();
    if (asyncError == nullptr) return failed(ncclInvalidArgument, "GetAsyncError: null");
    *asyncError = call->poll();
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    const Call call("ncclCommCount", comm, Needs::readiness);
    if (!call.refused()) *count = call->seat().ranks;
    return call.result();
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
    const Call call("ncclCommCuDevice", comm, Needs::readiness);
    if (!call.refused()) *device = call->seat().device;
    return call.result();
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    const Call call("ncclCommUserRank", comm, Needs::readiness);
    if (!call.refused()) *rank = call->seat().rank;
    return call.result();
}
