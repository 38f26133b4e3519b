#include "backends/backend.hpp"

#include <ddp/error.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

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
        case Backend::hierarchical:
            return "hierarchical";
    }
    return "unknown";
}

const char* to_string(ReduceOp op) noexcept {
    switch (op.kind) {
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
        case ReduceOp::bit_and:
            return "bit_and";
        case ReduceOp::bit_or:
            return "bit_or";
        case ReduceOp::bit_xor:
            return "bit_xor";
        case ReduceOp::premul_sum:
            return "premul_sum";
    }
    return "unknown";
}

bool is_defined(ReduceOp op, DType dtype) noexcept {
    switch (op.kind) {
        case ReduceOp::sum:
        case ReduceOp::min:
        case ReduceOp::max:
        case ReduceOp::product:
            return true;
        case ReduceOp::avg:
            return dtype != DType::boolean;
        case ReduceOp::bit_and:
        case ReduceOp::bit_or:
        case ReduceOp::bit_xor:
            return !is_floating_point(dtype);
        case ReduceOp::premul_sum:
            return is_floating_point(dtype);
    }
    return false;
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
        case Collective::reduce:
            return "reduce";
        case Collective::gather:
            return "gather";
        case Collective::scatter:
            return "scatter";
        case Collective::all_to_all:
            return "all_to_all";
        case Collective::allocate:
            return "allocate";
        case Collective::adopt:
            return "adopt";
    }
    return "unknown";
}

bool all_send(Collective kind) noexcept {
    return kind == Collective::all_reduce || kind == Collective::all_gather ||
           kind == Collective::reduce_scatter || kind == Collective::all_to_all;
}

std::string describe(const Call& call) {
    std::string text = to_string(call.kind);
    if (call.kind == Collective::barrier) return text;
    text += " of " + std::to_string(call.elements) + " " + ddp::to_string(call.dtype);
    switch (call.kind) {
        case Collective::all_reduce:
        case Collective::reduce_scatter:
        case Collective::reduce:
            text += std::string(" (") + ddp::to_string(call.op) + ")";
            break;
        case Collective::broadcast:
        case Collective::all_gather:
        case Collective::gather:
        case Collective::scatter:
        case Collective::all_to_all:
        case Collective::allocate:
        case Collective::adopt:
        case Collective::barrier:
            break;
    }
    const bool from = call.kind == Collective::broadcast || call.kind == Collective::scatter;
    const bool to = call.kind == Collective::reduce || call.kind == Collective::gather;
    if (from || to) text += (from ? " from rank " : " to rank ") + std::to_string(call.root);
    return text;
}

std::string describe(const Transfer& transfer) {
    const bool send = transfer.direction == Direction::send;
    return std::string(send ? "send of " : "recv of ") + std::to_string(transfer.bytes) +
           (send ? " bytes to rank " : " bytes from rank ") + std::to_string(transfer.peer);
}

std::string describe(const CallSite& site) {
    const std::string_view file = site.file();
    return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(site.line());
}

void rethrow_at(const CallSite& site) {
    if (site.line() == 0) throw;
    const std::string here = " (this rank's call: " + describe(site) + ")";
    try {
        throw;
    } catch (const UsageError& error) {
        throw UsageError(error.what() + here, error.culprit());
    } catch (const TimeoutError& error) {
        throw TimeoutError(error.what() + here, error.culprit());
    } catch (const PeerError& error) {
        throw PeerError(error.rank(), error.what() + here);
    } catch (const BackendError& error) {
        const std::string text = std::string(error.what()).substr(error.library().size() + 2);
        throw BackendError(error.library(), error.code(), text + here);
    }
}

std::shared_ptr<void> allocate_private(std::size_t bytes) {
    const std::size_t mapped = std::max(bytes, std::size_t{1});
    void* const memory =
        ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        throw SystemError("allocate " + std::to_string(bytes) + " bytes", errno);
    return {memory, [mapped](void* data) { ::munmap(data, mapped); }};
}

}  // namespace ddp::backends
