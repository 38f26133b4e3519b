// Device: where a tensor is. "cuda:1" is the second GPU that this process sees: with
// CUDA_VISIBLE_DEVICES=1,3 the host's GPUs 1 and 3 are cuda:0 and cuda:1 here.
//
// The CPU is one device, "cpu", unless DDP_CPU_DEVICES=8 divides it into eight virtual ones, cpu:0
// (which prints as "cpu") to cpu:7: the same memory and cores by several names, so that code for
// several GPUs runs and is tested where there are none. 1 to 64; anything else is a UsageError. A
// rank's own, ProcessGroup::device(), is then the one of its local rank, modulo their number.
#pragma once

#include <ddp/export.hpp>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

// The memory of this host, or that of a GPU.
enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
    DeviceType type = DeviceType::cpu;
    int index = 0;

    // "cpu", "cpu:3", "cuda" or "cuda:1"; whether there is such a device is asked when it is used.
    // "cuda" is the GPU of the innermost DeviceScope, if that names one; else in a rank, once
    // init_process_group has returned, the group's, as after torch.cuda.set_device(local_rank);
    // else cuda:0. Throws UsageError, which knows what "cuda: 0" and "gpu1" mean.
    DDP_API static Device parse(std::string_view text);

    friend bool operator==(const Device&, const Device&) = default;
};

DDP_API std::string to_string(const Device&);  // "cpu", "cpu:3", "cuda:1"
DDP_API std::ostream& operator<<(std::ostream&, const Device&);

// Those that work is spread over by default, as DataParallel does: the GPUs that this process sees;
// without any, or with DDP_CPU_DEVICES set, the CPU devices. Never empty.
DDP_API std::vector<Device> devices();
DDP_API std::vector<Device> devices(DeviceType);  // all of this type; may be empty for GPUs
DDP_API int device_count();                       // of devices()
DDP_API int device_count(DeviceType);             // of GPUs: as torch.cuda.device_count()
// Whether this process sees a GPU, as torch.cuda.is_available(); whatever DDP_CPU_DEVICES says.
DDP_API bool is_available();

// Until its end, the device of this thread's new tensors that name none; with a GPU also the
// thread's current CUDA device, for kernels of yours, and it stays that where the process has not
// used the one before, as CUDA would open that. Scopes nest; other threads have their own.
// Throws UsageError when there is no such device, as `devices` lists them.
class DDP_API DeviceScope {
public:
    [[nodiscard]] explicit DeviceScope(const Device& device);  // the scope begins
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;
    ~DeviceScope();

    static Device current() noexcept;  // the innermost scope's; the CPU outside of all

private:
    Device before_;
    int gpu_before_ = -1;  // CUDA's current device; -1: not changed
};

}  // namespace ddp
