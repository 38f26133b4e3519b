// The device API on the host promises what CUDA's does, so that what is tested with it is true.
#include "support/host_device_api.hpp"
#include "tensor/device_api_suite.hpp"

namespace ddp::testing {
namespace {

device::DeviceApi& host_api() {
    static HostDeviceApi api;
    return api;
}

INSTANTIATE_TEST_SUITE_P(Host, DeviceApiSuite, ::testing::Values(ApiSource{"host", &host_api}));

}  // namespace
}  // namespace ddp::testing
