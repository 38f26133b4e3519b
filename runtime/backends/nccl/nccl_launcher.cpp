#include "backends/nccl/nccl_launcher.hpp"

#include "backends/nccl/nccl_reductions.hpp"

#include <ddp/error.hpp>
#include <ddp/half.hpp>

#include <algorithm>
#include <numeric>

namespace ddp::nccl {
namespace {

using backends::Call;
using backends::Collective;

const std::byte* input_of(const Call& call) { return static_cast<const std::byte*>(call.input); }
std::byte* output_of(const Call& call) { return static_cast<std::byte*>(call.output); }

// Where the part of `rank` begins, in bytes.
std::size_t offset_of(const std::vector<std::size_t>& counts, std::size_t rank, DType dtype) {
    return size_of(dtype) * std::accumulate(counts.begin(),
                                            counts.begin() + static_cast<std::ptrdiff_t>(rank),
                                            std::size_t{0});
}

}  // namespace

// The operations with a factor of a launch. After a launch that failed they go with the
// communicator, of which nothing may be asked any more.
class NcclLauncher::CustomOps {
public:
    explicit CustomOps(const NcclLauncher& launcher)
        : launcher_(launcher), comm_(launcher.communicator_.handle()) {}
    CustomOps(const CustomOps&) = delete;
    CustomOps& operator=(const CustomOps&) = delete;

    ncclRedOp_t make(double factor, DType dtype) {
        return dtype == DType::float64   ? make_of(factor, ncclFloat64)
               : dtype == DType::float16 ? make_of(float16(static_cast<float>(factor)), ncclFloat16)
               : dtype == DType::bfloat16
                   ? make_of(bfloat16(static_cast<float>(factor)), ncclBfloat16)
                   : make_of(static_cast<float>(factor), ncclFloat32);
    }

    void destroy() {  // NCCL has launched what uses them
        for (const ncclRedOp_t op : ops_) launcher_.library_.operations.red_op_destroy(op, comm_);
    }

private:
    template <class T>
    ncclRedOp_t make_of(T factor, ncclDataType_t type) {
        ncclRedOp_t op{};
        launcher_.communicator_.check(launcher_.library_.operations.red_op_create_premul_sum(
                                          &op, &factor, type, ncclScalarHostImmediate, comm_),
                                      "ncclRedOpCreatePreMulSum");
        ops_.push_back(op);
        return op;
    }

    const NcclLauncher& launcher_;
    ncclComm_t comm_;
    std::vector<ncclRedOp_t> ops_;
};

// Not float16, whose sum overflows where the average does not.
bool NcclLauncher::scales_after(const Call& call) const {
    return averaging_ == Averaging::by_sum_and_scale && reduces(call) &&
           call.kind != Collective::reduce &&  // for which NVLS does nothing
           call.op.kind == ReduceOp::avg && is_floating_point(call.dtype) &&
           call.dtype != DType::float16 && call.bytes() >= least_scaled_bytes;
}

std::size_t NcclLauncher::own_offset(const Call& call) const {
    return static_cast<std::size_t>(own_.rank) * call.bytes();
}

ncclRedOp_t NcclLauncher::op_of(const Call& call, CustomOps& custom) const {
    if (!reduces(call) || scales_after(call)) return ncclSum;
    if (call.op.kind == ReduceOp::premul_sum) return custom.make(call.op.factor, call.dtype);
    return *simple_op(call.op, call.dtype);
}

// Whether NCCL has anything to do; the same on all ranks, but for what an uneven all_to_all moves.
bool NcclLauncher::moves_between_ranks(const Call& call) const {
    return call.parts != nullptr || call.elements > 0;
}

void NcclLauncher::launch(std::span<const Call> calls) {
    communicator_.require_usable();
    communicator_.wait_for_program();
    CustomOps custom(*this);
    enqueued_.clear();
    for (const Call& call : calls) {
        if (!moves_between_ranks(call)) continue;
        enqueued_.push_back({&call, op_of(call, custom)});
        copy_own_part(call);
    }
    if (!enqueued_.empty()) {
        communicator_.launch_group([this](ncclComm_t comm) {
            for (const Enqueued& one : enqueued_) enqueue(*one.call, one.op, comm);
        });
    }
    custom.destroy();
    for (const Enqueued& one : enqueued_) {
        if (scales_after(*one.call)) scale(*one.call);
    }
}

void NcclLauncher::launch(std::span<const backends::Transfer> transfers) {
    communicator_.require_usable();
    communicator_.wait_for_program();
    communicator_.launch_group([&](ncclComm_t comm) {
        for (const backends::Transfer& transfer : transfers) {
            auto* const data = static_cast<std::byte*>(transfer.data);
            if (transfer.direction == backends::Direction::send) {
                send(data, transfer.bytes, transfer.peer, comm);
            } else {
                receive(data, transfer.bytes, transfer.peer, comm);
            }
        }
    });
}

void NcclLauncher::enqueue(const Call& call, ncclRedOp_t op, ncclComm_t comm) {
    switch (call.kind) {
        case Collective::all_reduce:
        case Collective::reduce:
        case Collective::reduce_scatter:
            return enqueue_reduction(call, op, comm);
        case Collective::broadcast:
            return communicator_.check(
                library_.operations.broadcast(call.input, call.output, call.bytes(), ncclUint8,
                                              call.root, comm, stream_),
                "ncclBroadcast");
        case Collective::all_gather:
            if (call.parts) return gather_unevenly(call, comm);
            return communicator_.check(
                library_.operations.all_gather(call.input, call.output, call.bytes(), ncclUint8,
                                               comm, stream_),
                "ncclAllGather");
        case Collective::gather:
            return gather(call, comm);
        case Collective::scatter:
            return scatter(call, comm);
        case Collective::all_to_all:
            return all_to_all(call, comm);
        case Collective::barrier:
        case Collective::allocate:
        case Collective::adopt:
            break;
    }
    throw Error("nccl: cannot run " + backends::describe(call));
}

void NcclLauncher::enqueue_reduction(const Call& call, ncclRedOp_t op, ncclComm_t comm) {
    const ncclDataType_t type = *type_of(call.dtype);
    if (call.kind == Collective::reduce) {
        return communicator_.check(
            library_.operations.reduce(call.input, call.output, call.elements, type, op, call.root,
                                       comm, stream_),
            "ncclReduce");
    }
    if (call.kind == Collective::all_reduce) {
        return communicator_.check(
            library_.operations.all_reduce(call.input, call.output, call.elements, type, op, comm,
                                           stream_),
            "ncclAllReduce");
    }
    communicator_.check(library_.operations.reduce_scatter(call.input, call.output, call.elements,
                                                           type, op, comm, stream_),
                        "ncclReduceScatter");
}

void NcclLauncher::scale(const Call& call) {
    const TensorView values(call.output, Shape{static_cast<std::int64_t>(call.elements)},
                            call.dtype, {DeviceType::cuda, api_.current()});
    api_.scale(values, 1.0 / own_.ranks, stream_);
}

// What stays on this rank, of the operations made of sends and receives.
void NcclLauncher::copy_own_part(const Call& call) {
    const std::byte* from = input_of(call);
    std::byte* to = output_of(call);
    std::size_t bytes = call.bytes();
    if (call.kind == Collective::all_to_all) {
        const auto own = static_cast<std::size_t>(own_.rank);
        from += call.parts ? offset_of(call.parts->send, own, call.dtype) : own_offset(call);
        to += call.parts ? offset_of(call.parts->receive, own, call.dtype) : own_offset(call);
        if (call.parts) bytes = call.parts->send[own] * size_of(call.dtype);
    } else if (call.kind == Collective::gather && is_root(call)) {
        to += own_offset(call);
    } else if (call.kind == Collective::scatter && is_root(call)) {
        from += own_offset(call);
    } else {
        return;
    }
    if (bytes > 0 && from != to) api_.copy(to, from, bytes, stream_);
}

void NcclLauncher::gather_unevenly(const Call& call, ncclComm_t comm) {
    std::byte* part = output_of(call);
    for (int rank = 0; rank < own_.ranks; ++rank) {
        const std::size_t bytes =
            call.parts->send[static_cast<std::size_t>(rank)] * size_of(call.dtype);
        const void* const input = rank == own_.rank ? call.input : part;
        if (bytes > 0) {
            communicator_.check(
                library_.operations.broadcast(input, part, bytes, ncclUint8, rank, comm, stream_),
                "ncclBroadcast");
        }
        part += bytes;
    }
}

void NcclLauncher::gather(const Call& call, ncclComm_t comm) {
    if (!is_root(call)) return send(input_of(call), call.bytes(), call.root, comm);
    for (int rank = 0; rank < own_.ranks; ++rank) {
        if (rank == own_.rank) continue;
        receive(output_of(call) + static_cast<std::size_t>(rank) * call.bytes(), call.bytes(), rank,
                comm);
    }
}

void NcclLauncher::scatter(const Call& call, ncclComm_t comm) {
    if (!is_root(call)) return receive(output_of(call), call.bytes(), call.root, comm);
    for (int rank = 0; rank < own_.ranks; ++rank) {
        if (rank == own_.rank) continue;
        send(input_of(call) + static_cast<std::size_t>(rank) * call.bytes(), call.bytes(), rank,
             comm);
    }
}

void NcclLauncher::all_to_all(const Call& call, ncclComm_t comm) {
    const std::byte* from = input_of(call);
    std::byte* to = output_of(call);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(own_.ranks); ++rank) {
        const std::size_t element = size_of(call.dtype);
        const std::size_t sent = call.parts ? call.parts->send[rank] * element : call.bytes();
        const std::size_t got = call.parts ? call.parts->receive[rank] * element : call.bytes();
        const int peer = static_cast<int>(rank);
        if (peer != own_.rank) {
            send(from, sent, peer, comm);
            receive(to, got, peer, comm);
        }
        from += sent;
        to += got;
    }
}

void NcclLauncher::send(const std::byte* data, std::size_t bytes, int peer, ncclComm_t comm) {
    if (bytes == 0) return;
    communicator_.check(library_.operations.send(data, bytes, ncclUint8, peer, comm, stream_),
                        "ncclSend");
}

void NcclLauncher::receive(std::byte* data, std::size_t bytes, int peer, ncclComm_t comm) {
    if (bytes == 0) return;
    communicator_.check(library_.operations.recv(data, bytes, ncclUint8, peer, comm, stream_),
                        "ncclRecv");
}

}  // namespace ddp::nccl
