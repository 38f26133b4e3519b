// DistributedDataParallel: a net whose backward leaves gradients averaged over all ranks. A Reducer
// plus the few lines that connect it to a net. Source: torch.nn.parallel.DistributedDataParallel.
#pragma once

#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

namespace ddp {

// A net that can be wrapped: hands out its parameters, always the same span, and calls the hook
// during backward, for each parameter once, as soon as its gradient is complete. An empty hook
// unregisters.
template <class Net>
concept Trainable = requires(Net net, GradientReady hook) {
    { net.parameters() } -> std::convertible_to<std::span<Parameter>>;
    net.on_gradient_ready(hook);
};

// Borrows net and group; both must outlive it. One wrapper a net. What the constructor checks and
// throws is the Reducer's. Gradients accumulate over backwards until the optimiser zeroes them.
template <Trainable Net>
class DistributedDataParallel {
public:
    DistributedDataParallel(Net& net, ProcessGroup& group, const ReducerOptions& options = {})
        : net_(net), reducer_(std::span<Parameter>(net.parameters()), group, options) {
        net_.on_gradient_ready([this](std::size_t parameter, Stream stream) {
            reducer_.mark_ready(parameter, stream);
        });
    }
    ~DistributedDataParallel() { net_.on_gradient_ready({}); }
    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

    template <class... Args>
    decltype(auto) forward(Args&&... args) {
        return net_.forward(std::forward<Args>(args)...);
    }
    // Runs the net's backward, then waits until the gradients are averages.
    template <class... Args>
    void backward(Args&&... args) {
        net_.backward(std::forward<Args>(args)...);
        reducer_.wait();
    }

    // Gradients stay on this rank while the returned guard lives: see Reducer::no_sync.
    Reducer::NoSync no_sync() { return reducer_.no_sync(); }

    Net& module() noexcept { return net_; }
    Reducer& reducer() noexcept { return reducer_; }

private:
    Net& net_;
    Reducer reducer_;
};

}  // namespace ddp
