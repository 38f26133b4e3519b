// In a build without CUDA.
#include <ddp/error.hpp>

#include "nn/cuda_mlp.hpp"

namespace nn {

struct CudaMlp::Impl {};
struct CudaSgd::Impl {};

CudaMlp::CudaMlp(const Mlp& /*net*/, ddp::Device /*device*/) {
    throw ddp::UsageError("--device cuda: this program was built without CUDA");
}
CudaMlp::~CudaMlp() = default;
std::span<ddp::Parameter> CudaMlp::parameters() { return {}; }
void CudaMlp::on_gradient_ready(ddp::GradientReady /*hook*/) {}
ddp::Stream CudaMlp::stream() const { return {}; }
double CudaMlp::forward(std::span<const float> /*images*/,
                        std::span<const std::int32_t> /*labels*/) {
    return 0;
}
void CudaMlp::backward() {}
void CudaMlp::copy_to(Mlp& /*net*/) const {}

CudaSgd::CudaSgd(CudaMlp& /*net*/, const SgdOptions& /*options*/) {}
CudaSgd::~CudaSgd() = default;
void CudaSgd::step() {}
std::vector<ddp::NamedTensor> CudaSgd::state_dict() { return {}; }

}  // namespace nn
