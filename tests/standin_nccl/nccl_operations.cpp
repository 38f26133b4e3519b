// NCCL's functions that move data, and groups of them.
#include "standin_nccl/handle.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace stand_in {

namespace {
struct Grouped {
    ncclComm_t comm;
    CUstream_st* stream;
    std::vector<Operation> operations;
};

struct Group {
    int depth = 0;
    ncclResult_t error = ncclSuccess;
    std::vector<Grouped> work;  // one for each communicator
    std::vector<ncclComm_t> inits;
    std::vector<std::pair<ncclComm_t, std::vector<std::function<void()>>>> jobs;
    std::vector<std::pair<ncclComm_t, End>> ends;
};
thread_local Group group;

ncclResult_t add_to_group(ncclComm_t comm, CUstream_st* stream, const Operation& operation) {
    const auto same = [comm](const Grouped& grouped) { return grouped.comm == comm; };
    const auto found = std::find_if(group.work.begin(), group.work.end(), same);
    if (found == group.work.end()) {
        group.work.push_back({comm, stream, {operation}});
    } else if (found->stream != stream) {
        return failed(ncclInvalidUsage, "the stand-in takes one stream for a group");
    } else {
        found->operations.push_back(operation);
    }
    return ncclSuccess;
}

void add_job_to_group(ncclComm_t comm, std::function<void()> job) {
    const auto same = [comm](const auto& entry) { return entry.first == comm; };
    auto found = std::find_if(group.jobs.begin(), group.jobs.end(), same);
    if (found == group.jobs.end()) found = group.jobs.insert(found, {comm, {}});
    found->second.push_back(std::move(job));
}

// How much memory an operation reads and writes on a rank.
struct Extent {
    std::size_t from;
    std::size_t to;
};

Extent extent(const Operation& operation, const Communicator::Seat& seat) {
    const std::size_t part = operation.count * size_of(operation.dtype);
    const std::size_t all = part * static_cast<std::size_t>(seat.ranks);
    const bool is_root = operation.root == seat.rank;
    switch (operation.kind) {
        case Kind::all_reduce:
            return {part, part};
        case Kind::reduce:
            return {part, is_root ? part : 0};
        case Kind::broadcast:
            return {is_root ? part : 0, part};
        case Kind::all_gather:
            return {part, all};
        case Kind::reduce_scatter:
            return {all, part};
        case Kind::all_to_all:
            return {all, all};
        case Kind::gather:
            return {part, is_root ? all : 0};
        case Kind::scatter:
            return {is_root ? all : 0, part};
        case Kind::send:
            return {part, 0};
        case Kind::receive:
            return {0, part};
    }
    return {0, 0};
}

ncclResult_t check(const std::string& name, const Operation& operation,
                   const Communicator::Seat& seat, const CUstream_st* stream) {
    if (size_of(operation.dtype) == 0) {
        return failed(ncclInvalidArgument, name + ": no such data type");
    }
    if (operation.root < 0 || operation.root >= seat.ranks) {
        return failed(ncclInvalidArgument, name + ": root or peer " +
                                               std::to_string(operation.root) + " of " +
                                               std::to_string(seat.ranks) + " ranks");
    }
    if (stream == nullptr || stream->magic != DDP_HOST_STREAM_MAGIC) {
        return failed(ncclInvalidArgument, name + ": not a stream");
    }
    if (stream->device != seat.device) {
        return misuse(name + ": the stream is of device " + std::to_string(stream->device) +
                      ", the communicator of " + std::to_string(seat.device));
    }
    const ddp_host_driver* const driver = find_driver();
    const Extent bytes = extent(operation, seat);
    if (bytes.from > 0 && driver->owns(seat.device, operation.from, bytes.from) == 0) {
        return misuse(name + ": sendbuff is not memory of the device, all of it");
    }
    if (bytes.to > 0 && driver->owns(seat.device, operation.to, bytes.to) == 0) {
        return misuse(name + ": recvbuff is not memory of the device, all of it");
    }
    return ncclSuccess;
}

ncclResult_t enqueue_checked(const char* function, Operation operation, ncclRedOp_t op,
                             ncclComm_t comm, cudaStream_t handle) {
    const Call call(function, comm, Needs::work);
    if (call.refused()) return call.result();
    const auto reduction = call->find_reduction(op);
    if (!reduction) return failed(ncclInvalidArgument, "no such reduction");
    operation.reduction = *reduction;
    const ddp_host_driver* const driver = find_driver();
    CUstream_st* const stream = driver == nullptr ? nullptr : driver->stream(handle);
    const ncclResult_t checked = check(function, operation, call->seat(), stream);
    if (checked != ncclSuccess) return checked;
    if (in_group()) return add_to_group(comm, stream, operation);
    return call->launch({operation}, stream);
}

ncclResult_t enqueue(const char* function, const Operation& operation, ncclRedOp_t op,
                     ncclComm_t comm, cudaStream_t stream) {
    return note_in_group(enqueue_checked(function, operation, op, comm, stream));
}

const std::byte* bytes(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* bytes(void* memory) { return static_cast<std::byte*>(memory); }

// The result of several.
void join(ncclResult_t& all, ncclResult_t one) {
    if (all == ncclSuccess || (all == ncclInProgress && one != ncclSuccess)) all = one;
}

// What a communicator does in the background: its result, or that it is under way.
void join_background(ncclResult_t& all, ncclComm_t comm) {
    const Call call("ncclGroupEnd", comm, Needs::life);
    if (call.refused()) return join(all, call.result());
    join(all, call->blocks() ? finished(call) : ncclInProgress);
}

void start_jobs(ncclResult_t& all, ncclComm_t comm, std::vector<std::function<void()>> jobs) {
    const Call call("ncclGroupEnd", comm, Needs::readiness);
    if (call.refused()) return join(all, call.result());
    call->in_background([jobs = std::move(jobs)] {
        for (const auto& job : jobs) job();
    });
}

ncclResult_t end_group() {
    const Group ended = std::exchange(group, {});
    if (ended.error != ncclSuccess) return ended.error;
    ncclResult_t result = ncclSuccess;
    for (const auto& entry : ended.jobs) start_jobs(result, entry.first, entry.second);
    for (const auto& entry : ended.jobs) join_background(result, entry.first);
    if (result != ncclSuccess && result != ncclInProgress) return result;
    for (const Grouped& work : ended.work) {
        const Call call("ncclGroupEnd", work.comm, Needs::work);
        join(result, call.refused() ? call.result() : call->launch(work.operations, work.stream));
    }
    for (ncclComm_t const comm : ended.inits) join_background(result, comm);
    for (const auto& [comm, end] : ended.ends) join(result, end(comm));
    return result;
}
}  // namespace

bool in_group() { return group.depth > 0; }

ncclResult_t note_in_group(ncclResult_t result) {
    if (in_group() && result != ncclSuccess) group.error = result;
    return result;
}

ncclResult_t finished(const Call& call) {
    call->join_background();
    return call->error() == ncclSuccess ? ncclSuccess : failed(call->error(), call->error_text());
}

ncclResult_t run_job(const Call& call, ncclComm_t comm, std::function<void()> job) {
    if (in_group()) {
        add_job_to_group(comm, std::move(job));
        return ncclSuccess;
    }
    call->in_background(std::move(job));
    return call->blocks() ? finished(call) : ncclInProgress;
}

void add_init_to_group(ncclComm_t comm) { group.inits.push_back(comm); }

void add_end_to_group(ncclComm_t comm, End end) { group.ends.emplace_back(comm, end); }

}  // namespace stand_in

using stand_in::bytes;
using stand_in::enqueue;
using stand_in::Kind;

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    return enqueue("ncclAllReduce",
                   {Kind::all_reduce, bytes(sendbuff), bytes(recvbuff), count, datatype}, op, comm,
                   stream);
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return enqueue("ncclReduce",
                   {Kind::reduce, bytes(sendbuff), bytes(recvbuff), count, datatype, root}, op,
                   comm, stream);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return enqueue("ncclBroadcast",
                   {Kind::broadcast, bytes(sendbuff), bytes(recvbuff), count, datatype, root},
                   ncclSum, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    return enqueue("ncclReduceScatter",
                   {Kind::reduce_scatter, bytes(sendbuff), bytes(recvbuff), recvcount, datatype},
                   op, comm, stream);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
    return enqueue("ncclAllGather",
                   {Kind::all_gather, bytes(sendbuff), bytes(recvbuff), sendcount, datatype},
                   ncclSum, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
    return enqueue("ncclAlltoAll",
                   {Kind::all_to_all, bytes(sendbuff), bytes(recvbuff), count, datatype}, ncclSum,
                   comm, stream);
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    return enqueue("ncclGather",
                   {Kind::gather, bytes(sendbuff), bytes(recvbuff), count, datatype, root}, ncclSum,
                   comm, stream);
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
    return enqueue("ncclScatter",
                   {Kind::scatter, bytes(sendbuff), bytes(recvbuff), count, datatype, root},
                   ncclSum, comm, stream);
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return enqueue("ncclSend", {Kind::send, bytes(sendbuff), nullptr, count, datatype, peer},
                   ncclSum, comm, stream);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return enqueue("ncclRecv", {Kind::receive, nullptr, bytes(recvbuff), count, datatype, peer},
                   ncclSum, comm, stream);
}

ncclResult_t ncclGroupStart() {
    stand_in::count_call("ncclGroupStart");
    ++stand_in::group.depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    stand_in::count_call("ncclGroupEnd");
    if (stand_in::group.depth == 0) return stand_in::misuse("ncclGroupEnd without its start");
    if (stand_in::group.depth > 1) {
        --stand_in::group.depth;
        return ncclSuccess;
    }
    return stand_in::end_group();
}
