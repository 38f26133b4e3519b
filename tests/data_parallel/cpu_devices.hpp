// Virtual CPU devices for a test, and the first few of them.
#pragma once

#include <ddp/device.hpp>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

namespace ddp::testing {

// DDP_CPU_DEVICES for as long as this lives. No other thread may run at both ends.
class CpuDevices {
public:
    explicit CpuDevices(int count) {
        ::setenv("DDP_CPU_DEVICES", std::to_string(count).c_str(), 1);
    }
    ~CpuDevices() { ::unsetenv("DDP_CPU_DEVICES"); }
    CpuDevices(const CpuDevices&) = delete;
    CpuDevices& operator=(const CpuDevices&) = delete;
};

inline Device cpu(int index) { return {DeviceType::cpu, index}; }
inline std::vector<Device> first_cpus(std::size_t count) {
    std::vector<Device> devices;
    for (std::size_t i = 0; i < count; ++i) devices.push_back(cpu(static_cast<int>(i)));
    return devices;
}

}  // namespace ddp::testing
