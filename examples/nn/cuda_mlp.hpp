// CudaMlp and CudaSgd: Mlp and Sgd on a GPU, by kernels of our own on a stream of their own. In a
// build without CUDA the constructors throw ddp::UsageError.
#pragma once

#include <ddp/parameter.hpp>
#include <ddp/stream.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/mlp.hpp"
#include "nn/sgd.hpp"

namespace nn {

class CudaMlp {
public:
    // With the weights of `net`, on the calling thread's current GPU, which is `device`.
    CudaMlp(const Mlp& net, ddp::Device device);
    ~CudaMlp();
    CudaMlp(const CudaMlp&) = delete;
    CudaMlp& operator=(const CudaMlp&) = delete;

    std::span<ddp::Parameter> parameters();
    void on_gradient_ready(ddp::GradientReady hook);
    ddp::Stream stream() const;  // of forward, backward and the optimiser

    // As Mlp's; the batch is in the host's memory, and is copied.
    double forward(std::span<const float> images, std::span<const std::int32_t> labels);
    // Returns when the kernels are on the stream.
    void backward();
    // The weights, to a net on the host of the same widths.
    void copy_to(Mlp& net) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

class CudaSgd {
public:
    // Borrows the net.
    CudaSgd(CudaMlp& net, const SgdOptions& options);
    ~CudaSgd();
    CudaSgd(const CudaSgd&) = delete;
    CudaSgd& operator=(const CudaSgd&) = delete;

    void step();  // zeroes the gradients too
    void zero_grad() {}
    std::vector<ddp::NamedTensor> state_dict();

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace nn
