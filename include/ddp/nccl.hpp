// Opt-in: the NCCL communicator of a group, for what ddp does not offer. No header of NCCL is
// needed here; its ncclComm_t is a pointer to the type declared below.
#pragma once

#include <ddp/export.hpp>

#include <functional>

struct ncclComm;

namespace ddp {

class ProcessGroup;

// Calls `use` on this thread with the communicator, which is the group's, and gone with it or with
// its failure. NCCL allows one thread at a time: until `use` returns, the group's watchdog keeps
// out, and other threads' operations on the group, or one that shares with it, wait; `use` itself
// must start none, nor give back memory of the group's allocate(), and has to return within the
// group's timeout, without waiting for other ranks: a group that fails meanwhile is ended within
// DDP_NCCL_ABORT_TIMEOUT, if need be with the process (exit code 83). Wait for what it has started
// when it has returned. The rank's GPU is the current device. From NCCL 2.22 on the communicator
// blocks: a call returns when it is launched. An older one's does not: an answer may be
// ncclInProgress, and before another call to NCCL, in this `use` or a later one,
// ncclCommGetAsyncError has to say something else; the group's own next operation waits until then.
// All ranks must use it alike: its operations count among the group's. Throws what `use` throws,
// UsageError for a group without GPUs, and the group's error once it has failed.
DDP_API void with_native_handle(ProcessGroup& group, const std::function<void(ncclComm*)>& use);

}  // namespace ddp
