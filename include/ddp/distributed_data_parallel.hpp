// DistributedDataParallel: a net whose backward leaves gradients averaged over all ranks. A Reducer
// plus the few lines that connect it to a net. Source: torch.nn.parallel.DistributedDataParallel.
#pragma once

#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace ddp {

// A net that can be wrapped: hands out its parameters, always the same span, and calls the hook
// during backward, for each parameter once, as soon as its gradient is complete. An empty hook
// unregisters.
template <class Net>
concept Trainable = requires(Net net, GradientReady hook) {
    { net.parameters() } -> std::convertible_to<std::span<Parameter>>;
    net.on_gradient_ready(hook);
};
// Optional members of a net: buffers(), generators' state (the same tensors at each call)...
template <class Net>
concept HasRandomState = requires(Net net) {
    { net.random_state() } -> std::convertible_to<std::vector<NamedTensor>>;
};
// ... the stream that its forward and backward run on, on a GPU; else the default stream...
template <class Net>
concept HasStream = requires(Net net) {
    { net.stream() } -> std::convertible_to<Stream>;
};
// ... and, for find_unused_parameters, the parameters that the last forward did not use.
template <class Net>
concept ReportsUnusedParameters = requires(Net net) {
    { net.unused_parameters() } -> std::convertible_to<std::vector<std::size_t>>;
};

// Borrows net and group; both must outlive it. One wrapper a net. What the constructor checks and
// throws is the Reducer's. Gradients accumulate over backwards until the optimiser zeroes them.
template <Trainable Net>
class DistributedDataParallel {
public:
    // Collective.
    DistributedDataParallel(Net& net, ProcessGroup& group, const ReducerOptions& options = {})
        : net_(net),
          finds_unused_(options.find_unused_parameters),
          reducer_(std::span<Parameter>(net.parameters()), group, with_views(options),
                   state_of(net)) {
        net_.on_gradient_ready([this](std::size_t parameter, Stream stream) {
            reducer_.mark_ready(parameter, stream);
        });
    }
    ~DistributedDataParallel() { net_.on_gradient_ready({}); }
    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

    // Buffers are rank 0's first (collective, if the net has any): see Reducer::start_forward.
    template <class... Args>
    decltype(auto) forward(Args&&... args) {
        reducer_.start_forward(stream());
        return net_.forward(std::forward<Args>(args)...);
    }
    // Runs the net's backward, then waits until the gradients are averages. Returns whether they
    // are: time for the optimiser. Not under no_sync, nor before the last logical rank of this
    // rank had its turn.
    template <class... Args>
    [[nodiscard]] bool backward(Args&&... args) {
        start_backward();
        net_.backward(std::forward<Args>(args)...);
        return reducer_.wait(stream());
    }

    // Gradients stay on this rank while the returned guard lives: see Reducer::no_sync.
    Reducer::NoSync no_sync() { return reducer_.no_sync(); }
    // Ranks with different numbers of batches: see Reducer::join and Reducer::check_batches.
    void join(const std::function<void()>& train, const JoinOptions& options = {}) {
        reducer_.join(train, options);
    }
    void check_batches(std::size_t batches) { reducer_.check_batches(batches); }

    // For a checkpoint, beside the net's: see Reducer. CheckpointManager calls both.
    std::vector<NamedTensor> state_dict() { return reducer_.state_dict(); }
    void load_state_dict() { reducer_.load_state_dict(); }
    // The net's own, so that state saved through the wrapper has the net's names.
    std::span<Parameter> parameters() { return net_.parameters(); }

    Net& module() noexcept { return net_; }           // the net that was wrapped
    Reducer& reducer() noexcept { return reducer_; }  // what averages its gradients

private:
    static ReducerOptions with_views(ReducerOptions options) {
        options.gradient_as_bucket_view =
            options.gradient_as_bucket_view.value_or(!options.reduce_in_float32);
        return options;
    }
    static RankState state_of(Net& net) {
        RankState state;
        if constexpr (HasBuffers<Net>) state.buffers = net.buffers();
        if constexpr (HasRandomState<Net>) state.random_state = net.random_state();
        return state;
    }
    void start_backward() {
        if constexpr (ReportsUnusedParameters<Net>) {
            if (finds_unused_) {
                return reducer_.start_backward(net_.unused_parameters(), stream());
            }
        }
        reducer_.start_backward({}, stream());
    }
    Stream stream() const {
        if constexpr (HasStream<Net>) return net_.stream();
        return {};
    }

    Net& net_;
    bool finds_unused_;
    Reducer reducer_;
};

}  // namespace ddp
