#include "reducer/average.hpp"

#include "reducer/logical_sum.hpp"
#include "tensor/device/device_api.hpp"

#include <ddp/error.hpp>

#include <string>

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

}  // namespace ddp::reducer
