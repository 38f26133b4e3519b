// ddp's converting kernels as the host's compiler reads them.
#include "standin_cuda/kernels.hpp"

#include "tensor/device/convert_kernels.cu"

namespace ddp::device {
namespace {

const standin_cuda::Kernels kernels(threads, &convert<float>, &convert<double>,
                                    &convert<std::int32_t>, &convert<std::int64_t>,
                                    &convert<std::uint8_t>, &convert<__half>,
                                    &convert<__nv_bfloat16>, &convert<std::int8_t>,
                                    &convert<std::int16_t>, &convert<bool>);

}  // namespace
}  // namespace ddp::device
