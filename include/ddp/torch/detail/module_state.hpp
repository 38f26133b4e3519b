// A module's tensors, sorted by what data parallelism does with them. Not for users.
#pragma once

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/torch/detail/gradient.hpp>
#include <ddp/torch/detail/gradient_hook.hpp>
#include <ddp/torch/detail/rank_memory.hpp>
#include <ddp/torch/detail/stream.hpp>
#include <ddp/torch/tensor.hpp>

#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

namespace ddp::libtorch::detail {

struct ModuleState {
    std::vector<Gradient> gradients;    // of parameters, in torch's order; shared ones once
    std::vector<torch::Tensor> frozen;  // parameters without gradients
    std::vector<NamedBuffer> buffers;   // what forward updates beside parameters
};

// Throws UsageError when another wrapper has the module, or when there is nothing to average.
inline ModuleState collect_state(const torch::nn::Module& module) {
    ModuleState state;
    std::unordered_set<const void*> seen;  // a parameter may have several names
    for (const auto& named : module.named_parameters()) {
        const torch::Tensor& value = named.value();
        if (!value.defined() || !seen.insert(value.unsafeGetTensorImpl()).second) continue;
        if (!value.requires_grad()) {
            state.frozen.push_back(value);
            continue;
        }
        require_unwrapped(*torch::autograd::impl::grad_accumulator(value), named.key());
        state.gradients.emplace_back(named.key(), value);
    }
    if (state.gradients.empty()) {
        throw UsageError("libtorch: " + module.name() +
                         " has no parameter that requires a gradient; there is nothing to average");
    }
    for (const auto& named : module.named_buffers()) {
        if (named.value().defined()) state.buffers.push_back({named.key(), named.value()});
    }
    return state;
}

// Collective. The reducer adds memory to memory, so that all ranks must lay it out alike. Throws
// UsageError, on every rank.
inline void require_same_strides(std::span<const Gradient> gradients, ProcessGroup& group) {
    std::int64_t digest = 0;
    for (const Gradient& gradient : gradients) {
        for (const std::int64_t stride : gradient.value.strides()) {
            digest = static_cast<std::int64_t>(
                (static_cast<std::uint64_t>(digest) * 31 + static_cast<std::uint64_t>(stride)) &
                0x7fffffffffffffff);
        }
    }
    const std::int64_t least = group.all_reduce(digest, ReduceOp::min, CallSite{});
    if (group.all_reduce(digest, ReduceOp::max, CallSite{}) == least) return;
    throw UsageError(
        "libtorch: the ranks hold the module's parameters in different memory formats; call "
        "to(memory format) on all ranks or on none");
}

// Collective: rank 0's to all.
inline void broadcast_all(const std::vector<torch::Tensor>& tensors, ProcessGroup& group) {
    std::vector<TensorView> contiguous;
    for (const torch::Tensor& tensor : tensors) {
        if (tensor.is_contiguous()) {
            contiguous.push_back(view(tensor));
        } else {
            broadcast(group, tensor, Root{0}, CallSite{});
        }
    }
    if (contiguous.empty()) return;
    const Stream stream = current_stream(contiguous.front().device);
    group.broadcast_coalesced(contiguous, Root{0}, stream, CallSite{}).wait(stream);
}

}  // namespace ddp::libtorch::detail
