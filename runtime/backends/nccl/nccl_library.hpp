// NcclLibrary: libnccl, opened at run time: one binary serves hosts with and without it. Tables of
// the functions that are called, by NCCL's own declarations; its headers are needed to build only.
// Invariant: of a loaded library no function is null but those that are said to be optional.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>

struct ncclWindow_vidmem;  // what ncclWindow_t points to

namespace ddp::nccl {

// Those without which there is no communicator, and those that newer libraries have.
struct NcclCommunicatorCalls {
    decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
    decltype(&::ncclCommInitRankConfig) init_rank_config = nullptr;
    decltype(&::ncclCommGetAsyncError) get_async_error = nullptr;
    decltype(&::ncclCommFinalize) finalize = nullptr;
    decltype(&::ncclCommDestroy) destroy = nullptr;
    decltype(&::ncclCommAbort) abort = nullptr;
    // 2.18 and 2.28.7; null where the library has none. Written out: older headers have none
    // either.
    ncclResult_t (*split)(ncclComm_t, int color, int key, ncclComm_t*, ncclConfig_t*) = nullptr;
    ncclResult_t (*revoke)(ncclComm_t, int flags) = nullptr;
};

// Those that enqueue operations on a stream.
struct NcclOperationCalls {
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
};

// 2.19, windows 2.27; null where the library has none. Written out: older headers have none either.
struct NcclMemoryCalls {
    ncclResult_t (*alloc)(void** memory, std::size_t bytes) = nullptr;
    ncclResult_t (*free)(void* memory) = nullptr;
    ncclResult_t (*register_buffer)(ncclComm_t, void*, std::size_t bytes, void** handle) = nullptr;
    ncclResult_t (*deregister_buffer)(ncclComm_t, void* handle) = nullptr;
    ncclResult_t (*register_window)(ncclComm_t, void*, std::size_t bytes,
                                    ncclWindow_vidmem** window, int flags) = nullptr;
    ncclResult_t (*deregister_window)(ncclComm_t, ncclWindow_vidmem* window) = nullptr;
};

struct NcclLibrary {
    decltype(&::ncclGetVersion) get_version = nullptr;
    decltype(&::ncclGetErrorString) get_error_string = nullptr;
    decltype(&::ncclGetLastError) get_last_error = nullptr;
    NcclCommunicatorCalls communicator;
    NcclOperationCalls operations;
    NcclMemoryCalls memory;

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
