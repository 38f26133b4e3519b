// What the CUDA runtime answers when it is asked for devices, in one line of words. Pure, and
// without CUDA's headers, so that all answers can be tried on a host that gives only one of them.
#pragma once

#include "tensor/device/device_api.hpp"

#include <string>

namespace ddp::device {

struct RuntimeAnswer {
    int driver = 0;   // what the driver supports, as CUDA counts: 12020 is 12.2; 0: there is none
    int runtime = 0;  // what this build was linked with
    int error = 0;    // cudaGetDeviceCount's; 0: none
    int devices = 0;
    std::string words = {};  // what CUDA says of the error
};

Probe probe_of(const RuntimeAnswer& answer);

}  // namespace ddp::device
