// What DistributedDataParallel wraps: each way to hold a torch module. Not for users.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>

namespace ddp::libtorch::detail {

template <class Net>
concept TorchModule = std::derived_from<Net, torch::nn::Module>;

template <class Contained>
std::shared_ptr<Contained> share(const torch::nn::ModuleHolder<Contained>& holder) {
    return holder.ptr();
}
template <TorchModule Module>
std::shared_ptr<Module> share(const std::shared_ptr<Module>& module) {
    return module;
}
template <TorchModule Module>  // borrowed
std::shared_ptr<Module> share(Module& module) {
    return {std::shared_ptr<void>(), &module};
}

}  // namespace ddp::libtorch::detail
