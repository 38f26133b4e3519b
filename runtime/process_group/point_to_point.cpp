// send, recv and their batches: transfers beside the collectives.
#include "process_group/process_group_impl.hpp"

#include <ddp/error.hpp>

namespace ddp {

Work ProcessGroup::send(const TensorView& tensor, Peer to, Stream stream) {
    const P2POp op{P2POp::send, tensor, to};
    return batch_send_recv({&op, 1}, stream);
}

Work ProcessGroup::recv(const TensorView& tensor, Peer from, Stream stream) {
    const P2POp op{P2POp::recv, tensor, from};
    return batch_send_recv({&op, 1}, stream);
}

Work ProcessGroup::batch_send_recv(std::span<const P2POp> transfers, Stream) {
    std::vector<backends::Transfer> calls;
    for (const P2POp& op : transfers) {
        const std::string what = op.kind == P2POp::send ? "send to" : "recv from";
        if (op.peer.rank < 0 || op.peer.rank >= size() || op.peer.rank == rank()) {
            throw UsageError(what + " rank " + std::to_string(op.peer.rank) +
                             ": not another rank of a group of " + std::to_string(size()) +
                             " (this is rank " + std::to_string(rank()) + ")");
        }
        require_cpu(op.tensor, what + " rank " + std::to_string(op.peer.rank));
        const bool sends = op.kind == P2POp::send;
        calls.push_back({sends ? backends::Direction::send : backends::Direction::receive,
                         op.peer.rank, op.tensor.data, op.tensor.bytes()});
    }
    return Work(impl_->transfers->start(calls, impl_->timeout));
}

}  // namespace ddp
