// Checks arguments and turns each collective into a backends::Call in the queue.
#include "process_group/process_group_impl.hpp"

#include <ddp/error.hpp>

namespace ddp {
namespace {

using backends::Call;
using backends::Collective;

void require_cpu(const TensorView& tensor, const char* operation) {
    if (tensor.device.type == DeviceType::cpu) return;
    throw UsageError(std::string(operation) + ": the tensor is on " + to_string(tensor.device) +
                     ", but this group's backend shm moves CPU memory only");
}

void require_same_dtype(const TensorView& input, const TensorView& output, const char* operation) {
    if (input.dtype == output.dtype) return;
    throw UsageError(std::string(operation) + ": the input holds " + to_string(input.dtype) +
                     ", the output " + to_string(output.dtype));
}

// `whole` must hold `parts` times the elements of `part`.
void require_parts(const TensorView& whole, const TensorView& part, int parts,
                   const char* operation) {
    if (whole.numel() == part.numel() * static_cast<std::size_t>(parts)) return;
    throw UsageError(std::string(operation) + ": " + std::to_string(parts) + " ranks with " +
                     std::to_string(part.numel()) + " elements each need a tensor of " +
                     std::to_string(part.numel() * static_cast<std::size_t>(parts)) +
                     " elements, not " + std::to_string(whole.numel()));
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(ProcessGroup&&) noexcept = default;
ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const noexcept { return impl_->me.rank; }
int ProcessGroup::size() const noexcept { return impl_->me.world_size; }
int ProcessGroup::local_rank() const noexcept { return impl_->me.local_rank; }
int ProcessGroup::local_size() const noexcept { return impl_->me.local_world_size; }
Shard ProcessGroup::shard() const noexcept {
    return {static_cast<std::size_t>(rank()), static_cast<std::size_t>(size())};
}
Device ProcessGroup::device() const noexcept { return {}; }
Backend ProcessGroup::backend() const noexcept { return impl_->queue->backend_kind(); }
std::chrono::milliseconds ProcessGroup::timeout() const noexcept { return impl_->timeout; }

Work ProcessGroup::all_reduce(TensorView tensor, ReduceOp op, Stream stream) {
    return all_reduce(tensor, tensor, op, stream);
}

Work ProcessGroup::all_reduce(TensorView input, TensorView output, ReduceOp op, Stream) {
    require_cpu(input, "all_reduce");
    require_cpu(output, "all_reduce");
    require_same_dtype(input, output, "all_reduce");
    require_parts(output, input, 1, "all_reduce");
    return impl_->start({.kind = Collective::all_reduce,
                         .dtype = input.dtype,
                         .op = op,
                         .elements = input.numel(),
                         .input = input.data,
                         .output = output.data});
}

Work ProcessGroup::broadcast(TensorView tensor, Root root, Stream) {
    require_cpu(tensor, "broadcast");
    if (root.rank < 0 || root.rank >= size()) {
        throw UsageError("broadcast: root " + std::to_string(root.rank) +
                         " is not a rank of a group of " + std::to_string(size()));
    }
    return impl_->start({.kind = Collective::broadcast,
                         .dtype = tensor.dtype,
                         .root = root.rank,
                         .elements = tensor.numel(),
                         .input = tensor.data,
                         .output = tensor.data});
}

Work ProcessGroup::all_gather(TensorView input, TensorView output, Stream) {
    require_cpu(input, "all_gather");
    require_cpu(output, "all_gather");
    require_same_dtype(input, output, "all_gather");
    require_parts(output, input, size(), "all_gather");
    return impl_->start({.kind = Collective::all_gather,
                         .dtype = input.dtype,
                         .elements = input.numel(),
                         .input = input.data,
                         .output = output.data});
}

Work ProcessGroup::reduce_scatter(TensorView input, TensorView output, ReduceOp op, Stream) {
    require_cpu(input, "reduce_scatter");
    require_cpu(output, "reduce_scatter");
    require_same_dtype(input, output, "reduce_scatter");
    require_parts(input, output, size(), "reduce_scatter");
    return impl_->start({.kind = Collective::reduce_scatter,
                         .dtype = input.dtype,
                         .op = op,
                         .elements = output.numel(),
                         .input = input.data,
                         .output = output.data});
}

Work ProcessGroup::barrier() { return impl_->start({.kind = Collective::barrier}); }

}  // namespace ddp
