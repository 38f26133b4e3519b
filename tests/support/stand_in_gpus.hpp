// What stands in for GPUs in tests of any build: the CUDA code over the stand-in for its runtime, and
// in a build without CUDA the device API on the host. Linked as ddp::stand_in_gpus.
#pragma once

#ifdef DDP_STANDIN_CUDA
#include "standin_cuda/cards.hpp"
#else
#include "support/host_device_api.hpp"
#endif

namespace ddp::testing {

#ifdef DDP_STANDIN_CUDA
using StandInGpus = standin_cuda::Cards;
#else
using StandInGpus = HostDeviceApi;
#endif

}  // namespace ddp::testing
