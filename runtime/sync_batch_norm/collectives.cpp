// What goes between ranks, and when nothing may.
#include "process_group/call_source.hpp"
#include "process_group/group_access.hpp"

#include <ddp/error.hpp>
#include <ddp/sync_batch_norm.hpp>

namespace ddp {
namespace {

void require_float64(const TensorView& tensor) {
    if (tensor.dtype == DType::float64) return;
    throw UsageError(std::string("sync_batch_norm: moments and sums are float64, not ") +
                     to_string(tensor.dtype));
}

}  // namespace

void require_whole_batches(ProcessGroup& group) {
    if (*process_group::GroupAccess(group).reducers_with_logical_ranks() == 0) return;
    throw UsageError(
        "sync_batch_norm: a Reducer (or DistributedDataParallel) of this job works for more "
        "logical ranks than there are ranks, one after the other, so their batches are never "
        "together; start as many ranks as logical ranks, or use a batch norm of each rank's own");
}

Work all_gather_moments(const TensorView& mine, const TensorView& all, ProcessGroup& group,
                        Stream stream) {
    require_whole_batches(group);
    require_float64(mine);
    const process_group::SourceScope scope({.batch_norm = backends::BatchNormPass::forward});
    return group.all_gather(mine, all, stream);
}

Work all_reduce_gradient_sums(const TensorView& sums, ProcessGroup& group, Stream stream) {
    require_float64(sums);
    const process_group::SourceScope scope({.batch_norm = backends::BatchNormPass::backward});
    return group.all_reduce(sums, ReduceOp::sum, stream);
}

}  // namespace ddp
