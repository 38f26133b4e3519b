// Compiled by discarded_result_test.sh: with DDP_DROP the results go nowhere.
#include <ddp/tensor_functions.hpp>

void move(const ddp::Tensor& x, const ddp::Device& device) {
#ifdef DDP_DROP
    x.to(device);
    x.to(ddp::DType::float64);
    x.to(device, ddp::DType::float64);
    ddp::DeviceScope{device};
#else
    const ddp::DeviceScope scope{device};
    const ddp::Tensor moved = x.to(device);
    static_cast<void>(moved.to(ddp::DType::float64));
#endif
}
