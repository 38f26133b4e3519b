#include "reducer/bucket_sender.hpp"

#include "process_group/group_access.hpp"
#include "reducer/logical_sum.hpp"
#include "tensor/device/device_api.hpp"

#include <ddp/error.hpp>

#include <string>
#include <utility>
#include <vector>

namespace ddp::reducer {

BucketWork start_average(const TensorView& tensor, ProcessGroup& group, std::size_t divisor,
                         Stream stream) {
    if (divisor == static_cast<std::size_t>(group.size())) {
        return {group.all_reduce(tensor, ReduceOp::avg, stream), {}};
    }
    if (tensor.device.type == DeviceType::cpu) {
        return {group.all_reduce(tensor, ReduceOp::sum, stream),
                [tensor, divisor](Stream) { divide(tensor, tensor, divisor); }};
    }
    if (!is_floating_point(tensor.dtype)) {
        throw UsageError(std::string("reducer: gradients of ") + to_string(tensor.dtype) +
                         " on a GPU are averaged over all ranks of the group only (join() with "
                         "divide_by_initial_world_size)");
    }
    return {group.all_reduce(tensor, ReduceOp::sum, stream), [tensor, divisor](Stream after) {
                device::device_api().scale(tensor, 1 / static_cast<double>(divisor), after);
            }};
}

SentBucket BucketSender::all_reduce(const TensorView& tensor, ReduceOp op) {
    auto took = std::make_unique<std::chrono::nanoseconds>();
    Work work = process_group::GroupAccess(group_).all_reduce(tensor, op, *took);
    return SentBucket({std::move(work), {}}, std::move(took));
}

double BucketSender::folded_factor(const BucketMemory& bucket) const {
    const bool folds = !hook_ && group_.size() > 1 && is_floating_point(bucket.spec.dtype);
    return folds ? 1 / static_cast<double>(divisor_) : 1;
}

SentBucket BucketSender::send(const BucketMemory& bucket, SendOptions options, Stream stream) {
    if (hook_) return SentBucket(send_by_hook(bucket, options, stream));
    if (group_.size() == 1) {
        if (own_logical_ranks_ > 1) average_logical_ranks(bucket);
        return {};
    }
    if (bucket.is_on_gpu()) return all_reduce_on_gpu(bucket.tensor, options.folded, stream);
    const TensorView sum =
        own_logical_ranks_ > 1 ? sum_logical_ranks(bucket) : bucket.tensor.view();
    if (divisor_ == static_cast<std::size_t>(group_.size())) {
        return all_reduce(sum, ReduceOp::avg);
    }
    SentBucket sent = all_reduce(sum, ReduceOp::sum);
    sent.started.then = [sum, average = bucket.tensor.view(), divisor = divisor_](Stream) {
        divide(sum, average, divisor);
    };
    return sent;
}

SentBucket BucketSender::all_reduce_on_gpu(const TensorView& tensor, bool folded, Stream stream) {
    if (folded) return SentBucket({group_.all_reduce(tensor, ReduceOp::sum, stream), {}});
    return SentBucket(start_average(tensor, group_, divisor_, stream));
}

BucketWork BucketSender::send_by_hook(const BucketMemory& bucket, SendOptions options,
                                      Stream stream) {
    if (own_logical_ranks_ > 1) sum_logical_ranks_in_place(bucket);
    std::vector<std::size_t> parameters;
    for (const BucketSlice& slice : bucket.spec.slices) parameters.push_back(slice.parameter);
    GradBucket seen{bucket.tensor, options.index, options.is_last, parameters, divisor_};
    return hook_(seen, group_, stream);
}

}  // namespace ddp::reducer
