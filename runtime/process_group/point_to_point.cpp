// send, recv and their batches: transfers beside the collectives.
#include "process_group/memory_overlap.hpp"
#include "process_group/process_group_impl.hpp"

#include <ddp/error.hpp>

namespace ddp {
namespace {

std::string describe(const P2POp& op) {
    return (op.kind == P2POp::send ? "send to rank " : "recv from rank ") +
           std::to_string(op.peer.rank);
}

// Two sends may read the same memory.
void require_apart(std::span<const P2POp> transfers) {
    process_group::MemoryRanges ranges;
    for (const P2POp& op : transfers) ranges.add(op.tensor, op.kind == P2POp::recv);
    const auto both = ranges.find_overlap();
    if (!both) return;
    const auto named = [&](std::size_t which) {
        return std::to_string(which) + " (" + describe(transfers[which]) + ")";
    };
    throw UsageError("batch_send_recv: transfers " + named(both->first) + " and " +
                     named(both->second) + " overlap; what is received needs memory of its own");
}

}  // namespace

Work ProcessGroup::send(const TensorView& tensor, Peer to, Stream stream, const CallSite& site) {
    const P2POp op{P2POp::send, tensor, to};
    return batch_send_recv({&op, 1}, stream, site);
}

Work ProcessGroup::recv(const TensorView& tensor, Peer from, Stream stream, const CallSite& site) {
    const P2POp op{P2POp::recv, tensor, from};
    return batch_send_recv({&op, 1}, stream, site);
}

Work ProcessGroup::batch_send_recv(std::span<const P2POp> transfers, Stream stream,
                                   const CallSite& site) {
    if (transfers.empty()) return {};
    for (const P2POp& op : transfers) {
        if (op.peer.rank < 0 || op.peer.rank >= size() || op.peer.rank == rank()) {
            throw UsageError(describe(op) + ": not another rank of a group of " +
                             std::to_string(size()) + " (this is rank " + std::to_string(rank()) +
                             ")");
        }
        if (op.tensor.device != Device{} || transfers[0].tensor.device != Device{}) {
            const std::string operation = describe(op);
            impl_->dispatch().require_reachable(op.tensor, operation.c_str());
            impl_->dispatch().require_one_device(transfers[0].tensor, op.tensor, operation.c_str());
        }
    }
    if (transfers.size() > 1) require_apart(transfers);
    if (transfers[0].tensor.device.type == DeviceType::cuda) {
        std::vector<backends::Transfer> calls;
        for (const P2POp& op : transfers) calls.push_back(process_group::transfer_of(op, site));
        return impl_->dispatch().start_on_gpu(calls, stream);
    }
    return impl_->dispatch().start(transfers, site);
}

}  // namespace ddp
