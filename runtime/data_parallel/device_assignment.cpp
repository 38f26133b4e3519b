#include <ddp/data_parallel_options.hpp>
#include <ddp/error.hpp>

#include <algorithm>
#include <span>
#include <string>

namespace ddp::data_parallel {

namespace {

std::string list_of(std::span<const Device> all) {
    std::string text;
    for (const Device& device : all) text += (text.empty() ? "" : ", ") + to_string(device);
    return text;
}

Device find(std::span<const Device> all, int id, const char* option) {
    if (id >= 0 && static_cast<std::size_t>(id) < all.size()) {
        return all[static_cast<std::size_t>(id)];
    }
    throw UsageError(std::string("DataParallel: ") + option + " has " + std::to_string(id) +
                     ", but the devices are 0 to " + std::to_string(all.size() - 1) + ": " +
                     list_of(all) + " (CUDA_VISIBLE_DEVICES and DDP_CPU_DEVICES choose them)");
}

}  // namespace

DeviceAssignment assign_devices(const DataParallelOptions& options) {
    const auto all = options.device_type ? devices(*options.device_type) : devices();
    if (all.empty()) {
        throw UsageError("DataParallel: there is no device of type " +
                         to_string(Device{*options.device_type}) + "; devices() are " +
                         list_of(devices()));
    }
    DeviceAssignment assignment{{}, {}};
    for (const int id : options.device_ids) {
        const Device device = find(all, id, "device_ids");
        if (std::ranges::find(assignment.devices, device) != assignment.devices.end()) {
            throw UsageError("DataParallel: device_ids has " + std::to_string(id) +
                             " twice; there is one replica a device");
        }
        assignment.devices.push_back(device);
    }
    if (assignment.devices.empty()) assignment.devices = all;
    assignment.output = options.output_device ? find(all, *options.output_device, "output_device")
                                              : assignment.devices.front();
    return assignment;
}

void require_forward(std::size_t replicas) {
    if (replicas > 0) return;
    throw UsageError(
        "DataParallel: backward without a forward that ended well before it; backward_loss() goes "
        "with forward_loss(), once each");
}

}  // namespace ddp::data_parallel
