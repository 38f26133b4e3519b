#include "reducer/bucket_sender.hpp"

#include "process_group/call_source.hpp"
#include "process_group/process_group_impl.hpp"
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

// As ProcessGroup::all_reduce, but tells how long the operation ran.
SentBucket BucketSender::all_reduce(const TensorView& tensor, ReduceOp op) {
    const backends::Call call{.kind = backends::Collective::all_reduce,
                              .dtype = tensor.dtype,
                              .op = op,
                              .elements = tensor.numel(),
                              .input = tensor.data,
                              .output = tensor.data,
                              .source = process_group::current_source};
    auto took = std::make_unique<std::chrono::nanoseconds>();
    auto run = [call, took = took.get()](backends::Backend& backend, std::uint64_t sequence,
                                         const base::Deadline& deadline) {
        const auto start = std::chrono::steady_clock::now();
        backend.run(call, sequence, deadline);
        *took = std::chrono::steady_clock::now() - start;
    };
    return SentBucket({group_.impl().start(call, std::move(run)), {}}, std::move(took));
}

double BucketSender::folded_factor(const BucketMemory& bucket) const {
    const bool folds = !hook_ && group_.size() > 1 && is_floating_point(bucket.spec.dtype);
    return folds ? 1 / static_cast<double>(divisor_) : 1;
}

SentBucket BucketSender::send(const BucketMemory& bucket, Turn turn, Stream stream) {
    if (hook_) return SentBucket(send_by_hook(bucket, turn, stream));
    if (group_.size() == 1) {
        if (turns_ > 1) average_turns(bucket);
        return {};
    }
    if (bucket.is_on_gpu()) return all_reduce_on_gpu(bucket.tensor, turn.folded, stream);
    const TensorView sum = turns_ > 1 ? sum_turns(bucket) : bucket.tensor.view();
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

BucketWork BucketSender::send_by_hook(const BucketMemory& bucket, Turn turn, Stream stream) {
    if (turns_ > 1) sum_turns_in_place(bucket);
    std::vector<std::size_t> parameters;
    for (const BucketSlice& slice : bucket.spec.slices) parameters.push_back(slice.parameter);
    GradBucket seen{bucket.tensor, turn.index, turn.is_last, parameters, divisor_};
    return hook_(seen, group_, stream);
}

}  // namespace ddp::reducer
