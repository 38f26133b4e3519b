// NcclLauncher: ddp's operations in NCCL's terms: each launch is one group of NCCL calls on one
// stream, and a scaling after it for some averages. Those that NCCL lacks (gather, scatter,
// all_to_all, uneven parts) are groups of sends, receives and broadcasts; what only moves, moves as
// bytes.
#pragma once

#include "backends/backend.hpp"
#include "backends/nccl/nccl_communicator.hpp"
#include "backends/nccl/nccl_reductions.hpp"
#include "tensor/device/device_api.hpp"

#include <span>
#include <vector>

namespace ddp::nccl {

class NcclLauncher {
public:
    NcclLauncher(const NcclLibrary& library, device::DeviceApi& api, Communicator& communicator,
                 Communicator::GroupRank own, Averaging averaging, CUstream_st* stream)
        : library_(library),
          api_(api),
          communicator_(communicator),
          own_(own),
          averaging_(averaging),
          stream_(stream) {}

    // The caller has the communicator (Communicator::Launch) and has asked require_supported.
    void launch(std::span<const backends::Call> calls);
    void launch(std::span<const backends::Transfer> transfers);

private:
    class CustomOps;
    bool scales_after(const backends::Call& call) const;
    bool is_root(const backends::Call& call) const { return call.root == own_.rank; }
    std::size_t own_offset(const backends::Call& call) const;  // in bytes, of the larger memory
    ncclRedOp_t op_of(const backends::Call& call, CustomOps& custom) const;
    bool moves_between_ranks(const backends::Call& call) const;

    void copy_own_part(const backends::Call& call);
    void enqueue(const backends::Call& call, ncclRedOp_t op, ncclComm_t comm);
    void enqueue_reduction(const backends::Call& call, ncclRedOp_t op, ncclComm_t comm);
    void gather_unevenly(const backends::Call& call, ncclComm_t comm);
    void gather(const backends::Call& call, ncclComm_t comm);
    void scatter(const backends::Call& call, ncclComm_t comm);
    void all_to_all(const backends::Call& call, ncclComm_t comm);
    void scale(const backends::Call& call);
    void send(const std::byte* data, std::size_t bytes, int peer, ncclComm_t comm);
    void receive(std::byte* data, std::size_t bytes, int peer, ncclComm_t comm);

    const NcclLibrary& library_;
    device::DeviceApi& api_;
    Communicator& communicator_;
    Communicator::GroupRank own_;
    Averaging averaging_;
    CUstream_st* stream_;
    struct Enqueued {
        const backends::Call* call;
        ncclRedOp_t op;
    };
    std::vector<Enqueued> enqueued_;  // of the launch that is under way, if any
};

}  // namespace ddp::nccl
