// ddp's adding kernels as the host's compiler reads them.
#include "standin_cuda/kernels.hpp"

#include "tensor/device/add_kernels.cu"

namespace ddp::device {
namespace {

const standin_cuda::Kernels kernels(threads, &add_memories<std::uint8_t>,
                                    &add_memories<std::uint16_t>, &add_memories<std::uint32_t>,
                                    &add_memories<std::uint64_t>, &add_memories<float>,
                                    &add_memories<double>, &add_memories<__half>,
                                    &add_memories<__nv_bfloat16>);

}  // namespace
}  // namespace ddp::device
