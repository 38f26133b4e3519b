// ddp's packing kernels as the host's compiler reads them.
#include "standin_cuda/kernels.hpp"

#include "tensor/device/pack_kernels.cu"

namespace ddp::device {
namespace {

const standin_cuda::Kernels kernels(threads, &move_items<std::uint8_t, Copy>,
                                    &move_items<std::uint16_t, Copy>,
                                    &move_items<std::uint32_t, Copy>,
                                    &move_items<std::uint64_t, Copy>, &move_items<float, Multiply>,
                                    &move_items<double, Multiply>, &move_items<__half, Multiply>,
                                    &move_items<__nv_bfloat16, Multiply>);
const standin_cuda::Kernels converting(threads, &convert_items<__half>,
                                       &convert_items<__nv_bfloat16>);

}  // namespace
}  // namespace ddp::device
