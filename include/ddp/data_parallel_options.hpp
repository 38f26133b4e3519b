// What DataParallel is told: which devices, when parameters are copied, what a loss function gives.
#pragma once

#include <ddp/export.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddp {

// When the replicas get the module's parameters: at each forward, as in PyTorch, or only at the
// first one after parameters_changed(), which then has to follow each step of the optimiser.
enum class CopyParameters : std::uint8_t { every_forward, when_changed };

// On which devices, and what is copied when.
struct DataParallelOptions {
    // Numbers of devices in devices(), or in devices(device_type); empty: all of them.
    std::vector<int> device_ids = {};
    std::optional<DeviceType> device_type = {};
    std::optional<int> output_device = {};  // where outputs are gathered; default: device_ids[0]
    // When replicas get the parameters.
    CopyParameters copy_parameters = CopyParameters::every_forward;
};

// What a loss function returns to DataParallel::forward_loss.
struct LossShare {
    double loss = 0;  // the sum over the replica's rows, divided by the rows of the whole batch
    Tensor gradient;  // of that, with respect to the replica's output
};

namespace data_parallel {

struct DeviceAssignment {
    std::vector<Device> devices;
    Device output;
};
// Throws UsageError for a number that devices() does not have, and for one given twice.
DDP_API DeviceAssignment assign_devices(const DataParallelOptions& options);
// Throws UsageError when none has run forward: backward comes after it.
DDP_API void require_forward(std::size_t replicas);

}  // namespace data_parallel

}  // namespace ddp
