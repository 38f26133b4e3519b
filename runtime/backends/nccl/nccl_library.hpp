// libnccl, opened at run time: one binary serves hosts with and without it. A table of the
// functions that are called, by NCCL's own declarations; its headers are needed to build only.
#pragma once

#include <nccl.h>

#include <string>

namespace ddp::nccl {

struct NcclLibrary {
    decltype(&::ncclGetVersion) get_version = nullptr;
    decltype(&::ncclGetErrorString) get_error_string = nullptr;
    decltype(&::ncclGetLastError) get_last_error = nullptr;
    decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
    decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;
    decltype(&::ncclCommGetAsyncError) comm_get_async_error = nullptr;
    decltype(&::ncclCommFinalize) comm_finalize = nullptr;
    decltype(&::ncclCommDestroy) comm_destroy = nullptr;
    decltype(&::ncclCommAbort) comm_abort = nullptr;
    decltype(&::ncclGroupStart) group_start = nullptr;
    decltype(&::ncclGroupEnd) group_end = nullptr;
    decltype(&::ncclAllReduce) all_reduce = nullptr;
    decltype(&::ncclReduce) reduce = nullptr;
    decltype(&::ncclBroadcast) broadcast = nullptr;
    decltype(&::ncclAllGather) all_gather = nullptr;
    decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
    decltype(&::ncclSend) send = nullptr;
    decltype(&::ncclRecv) recv = nullptr;
    decltype(&::ncclRedOpCreatePreMulSum) red_op_create_premul_sum = nullptr;
    decltype(&::ncclRedOpDestroy) red_op_destroy = nullptr;

    // Null where the library has none. Written out: older headers have none of them either.
    ncclResult_t (*comm_revoke)(ncclComm_t, int flags) = nullptr;           // 2.28.7
    ncclResult_t (*mem_alloc)(void** memory, std::size_t bytes) = nullptr;  // 2.19
    ncclResult_t (*mem_free)(void* memory) = nullptr;

    std::string name;  // as it was opened: a path, or "libnccl.so.2"
    int version = 0;   // 22809: 2.28.9

    // `path`, or "libnccl.so.2" when it is empty. It stays loaded. Throws BackendError that says in
    // one line what was tried, why it cannot be used, and what to do.
    static NcclLibrary load(const std::string& path);
    // This process's: of DDP_NCCL_LIBRARY when that is set. Opened by the first call; throws as the
    // other.
    static const NcclLibrary& load();
};

// "2.28.9"
std::string version_text(int version);

}  // namespace ddp::nccl
