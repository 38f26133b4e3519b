// GPUs and NCCL that are not there, for a program that knows nothing of it: in each process that
// links this, before main. With DDP_STAND_IN_GPUS=1 there is one GPU, which all processes share,
// and a variant of the stand-in NCCL that DDP_NCCL_LIBRARY names is left in place.
#include "process_group/gpus.hpp"

#include <cstdlib>
#include <string>

namespace {

std::string value_of(const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr ? value : "";
}

const ddp::testing::Gpus& make_gpus() {
    const std::string library = value_of("DDP_NCCL_LIBRARY");
    const ddp::testing::Gpus& gpus = ddp::testing::gpus();
    if (library.starts_with(ddp::testing::stand_in_path("libnccl_stand_in_"))) {
        ::setenv("DDP_NCCL_LIBRARY", library.c_str(), 1);
    }
    if (value_of("DDP_STAND_IN_GPUS") == "1") {
        ddp::standin_cuda::set_devices(1);
        ddp::standin_cuda::share_device();
    }
    return gpus;
}

[[maybe_unused]] const ddp::testing::Gpus& the_gpus = make_gpus();

}  // namespace
