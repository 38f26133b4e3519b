// What moves the bytes of a process group.
#pragma once

#include <ddp/export.hpp>

namespace ddp {

enum class Backend {
    automatic,     // the best that all ranks can have
    shm,           // shared memory, one host
    gloo,          // across hosts, CPU
    nccl,          // GPUs
    hierarchical,  // CPU: shm among the ranks of a host, gloo between hosts
};

DDP_API const char* to_string(Backend) noexcept;  // "shm"

}  // namespace ddp
