#include "backends/backend.hpp"

namespace ddp {

const char* to_string(Backend backend) noexcept {
    switch (backend) {
        case Backend::automatic:
            return "automatic";
        case Backend::shm:
            return "shm";
        case Backend::gloo:
            return "gloo";
        case Backend::nccl:
            return "nccl";
    }
    return "unknown";
}

const char* to_string(ReduceOp op) noexcept {
    switch (op) {
        case ReduceOp::sum:
            return "sum";
        case ReduceOp::avg:
            return "avg";
        case ReduceOp::min:
            return "min";
        case ReduceOp::max:
            return "max";
        case ReduceOp::product:
            return "product";
    }
    return "unknown";
}

}  // namespace ddp

namespace ddp::backends {

const char* to_string(Collective kind) noexcept {
    switch (kind) {
        case Collective::all_reduce:
            return "all_reduce";
        case Collective::broadcast:
            return "broadcast";
        case Collective::all_gather:
            return "all_gather";
        case Collective::reduce_scatter:
            return "reduce_scatter";
        case Collective::barrier:
            return "barrier";
    }
    return "unknown";
}

std::string describe(const Call& call) {
    std::string text = to_string(call.kind);
    if (call.kind == Collective::barrier) return text;
    text += " of " + std::to_string(call.elements) + " " + ddp::to_string(call.dtype);
    if (call.kind == Collective::all_reduce || call.kind == Collective::reduce_scatter) {
        text += std::string(" (") + ddp::to_string(call.op) + ")";
    }
    if (call.kind == Collective::broadcast) text += " from rank " + std::to_string(call.root);
    return text;
}

}  // namespace ddp::backends
