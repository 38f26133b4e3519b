#include "nn/device_option.hpp"

#include <ddp/error.hpp>

#include <string>

namespace nn {

std::vector<ddp::Device> devices_for(std::string_view choice) {
    if (choice == "auto") return ddp::devices();
    if (choice == "cpu") return ddp::devices(ddp::DeviceType::cpu);
    if (choice != "cuda") {
        throw ddp::UsageError("--device: auto, cpu or cuda, not \"" + std::string(choice) + "\"");
    }
    auto gpus = ddp::devices(ddp::DeviceType::cuda);
    if (gpus.empty()) throw ddp::UsageError("--device cuda: this process sees no GPU");
    return gpus;
}

}  // namespace nn
