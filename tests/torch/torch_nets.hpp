// Nets and helpers for the tests of the LibTorch adapter. Each test makes a group of its own, of
// all ranks that ddp-launch started.
#pragma once

#include <ddp/process_group.hpp>
#include <ddp/torch.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ddp::tests {

inline ProcessGroup join_group() {
    return init_process_group({.timeout = std::chrono::seconds{30}});
}

// Two layers without anything between: gradients of whole numbers are whole numbers.
struct TwoLayersImpl : torch::nn::Module {
    TwoLayersImpl()
        : first(register_module("first", torch::nn::Linear(5, 4))),
          second(register_module("second", torch::nn::Linear(4, 3))) {
        fill(0);
    }
    // Small whole numbers, others for each seed.
    void fill(std::int64_t seed) {
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& value : parameters()) {
            const auto numbers = torch::arange(value.numel(), torch::kInt64) * 7 + seed;
            value.copy_((numbers % 5 - 2).view(value.sizes()));
        }
    }
    torch::Tensor forward(const torch::Tensor& x) { return second(first(x)); }

    torch::nn::Linear first;
    torch::nn::Linear second;
};
TORCH_MODULE(TwoLayers);

// A row of whole numbers for each sample, from `first` on.
inline torch::Tensor rows(std::int64_t first, std::int64_t count, std::int64_t columns = 5) {
    const auto numbers =
        torch::arange(first * columns, (first + count) * columns, torch::kInt64) * 11 % 7 - 3;
    return numbers.view({count, columns}).to(torch::kFloat32);
}

inline std::vector<torch::Tensor> gradients_of(const torch::nn::Module& module) {
    std::vector<torch::Tensor> gradients;
    for (const torch::Tensor& value : module.parameters()) {
        gradients.push_back(value.grad().defined() ? value.grad().clone() : torch::Tensor());
    }
    return gradients;
}

// Whether the tensor has the same bits on all ranks.
inline bool same_bits_on_all_ranks(ProcessGroup& group, const torch::Tensor& tensor) {
    const auto bytes = tensor.detach().contiguous();
    const auto flat = torch::from_blob(bytes.data_ptr(),
                                       {static_cast<std::int64_t>(bytes.nbytes())}, torch::kUInt8);
    const auto largest = flat.clone();
    libtorch::all_reduce(group, largest, ReduceOp::max);
    const bool same = torch::equal(flat, largest);
    return group.all_reduce(same ? 1 : 0, ReduceOp::min) == 1;
}

// What the call throws, or "no error".
template <class Error>
std::string error_of(const auto& call) {
    try {
        call();
        return "no error";
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace ddp::tests
