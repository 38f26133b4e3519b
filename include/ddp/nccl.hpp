// Opt-in: the NCCL communicator of a group, for what ddp does not offer. No header of NCCL is
// needed here; its ncclComm_t is a pointer to the type declared below.
#pragma once

#include <ddp/export.hpp>

struct ncclComm;

namespace ddp {

class ProcessGroup;

// Owned by the group, and gone with it or with its failure. While it is used nothing may be started
// on the group by another thread, and all ranks must use it alike: its operations count among the
// group's. Throws UsageError for a group without GPUs, and the group's error once it has failed.
DDP_API ncclComm* native_handle(ProcessGroup& group);

}  // namespace ddp
