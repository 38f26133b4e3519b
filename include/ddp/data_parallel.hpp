// DataParallel: one process, one module, several devices. Each batch is cut along dimension 0, each
// device runs its rows through a replica of the module, and the outputs are joined again on one
// device. Source: torch.nn.DataParallel. DistributedDataParallel copies no parameters.
#pragma once

#include <ddp/data_parallel_options.hpp>
#include <ddp/replicas.hpp>
#include <ddp/scatter.hpp>

#include <cstddef>
#include <iosfwd>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp {

// Borrows the module, which has to be on device_ids[0] and must outlive it. One call at a time.
// Replica 0 is the module itself: what forward does to its buffers and members stays. What it does
// to the buffers of the other replicas is dropped at the next forward, which copies the module's
// anew, as in PyTorch. Replicas, their memory and one thread a device are kept between calls. A
// batch with fewer rows than needed for all devices (see scatter) runs on the first ones only. An
// exception in a replica names it and its device; nothing runs on after the call (see
// DeviceThreads::run). Gradients are then incomplete: zero them.
template <Module Net>
class DataParallel {
public:
    // Throws UsageError: devices that there are not, a device twice, a parameter or buffer of the
    // module that is not on device_ids[0] (forward looks again).
    explicit DataParallel(Net& module, const DataParallelOptions& options = {})
        : DataParallel(module, options, data_parallel::assign_devices(options)) {}

    // Inputs may be on any device. See scatter for how they are cut, gather for what is returned.
    template <class... Inputs>
    requires ForwardsFrom<Net, std::decay_t<Inputs>...>
    auto forward(const Inputs&... inputs) {
        using Part = std::tuple<std::decay_t<Inputs>...>;
        const std::vector<Part> parts = scatter(Part(inputs...), devices());
        start_forward(parts.size());
        const auto outputs = parallel_apply(replicas_, std::span<const Part>(parts));
        output_rows_ = data_parallel::rows_of(outputs);
        active_ = parts.size();
        return gather(outputs, output_device_);
    }

    // The gradients of forward's outputs, tensor by tensor, anywhere. Each replica of the last
    // forward runs backward on its rows of them; then their gradients are added into the module's
    // in Replicas::add_gradients's order. They accumulate, as in PyTorch. Returns what the module's
    // backward returns, gathered. UsageError when forward returned no tensor: see forward_loss.
    template <class... Gradients>
    requires BackwardsFrom<Net, Gradients...>
    auto backward(const Gradients&... gradients) {
        data_parallel::require_forward(active_);
        data_parallel::require_tensors(output_rows_);
        const std::tuple<Gradients...> whole(gradients...);
        const auto parts = data_parallel::scatter_rows(whole, data_parallel::tensors_of(whole),
                                                       output_rows_, devices().first(active_));
        return run_backward([&](std::size_t replica) {
            return std::apply([&](const auto&... g) { return replicas_[replica].backward(g...); },
                              parts[replica]);
        });
    }

    // The loss computed where the output is, so that one number a replica is gathered and
    // output_device needs no more memory than the others. Calls loss(output, target, rows) ->
    // LossShare for each replica, on all threads at once, so it changes nothing shared: its output,
    // its rows of the targets, and the rows of the whole batch. Returns the sum: the batch's loss.
    template <class Loss, class... Inputs>
    double forward_loss(const Loss& loss, const Tensor& targets, const Inputs&... inputs) {
        using Part = std::tuple<std::decay_t<Inputs>...>;
        const auto parts = scatter(std::pair(targets, Part(inputs...)), devices());
        const auto rows = static_cast<std::size_t>(targets.shape()[0]);
        start_forward(parts.size());
        shares_ = replicas_.collect(parts.size(), [&](std::size_t i) -> LossShare {
            const auto forward = [&](const auto&... in) { return replicas_[i].forward(in...); };
            return loss(std::apply(forward, parts[i].second), parts[i].first, rows);
        });
        active_ = parts.size();
        double sum = 0;
        for (const LossShare& share : shares_) sum += share.loss;
        return sum;
    }
    // After forward_loss: as backward, with the gradients that the loss functions have left.
    auto backward_loss() {
        data_parallel::require_forward(shares_.size());
        const auto shares = std::exchange(shares_, {});
        return run_backward([&](std::size_t replica) {
            return replicas_[replica].backward(shares[replica].gradient);
        });
    }

    // After each change of the module's parameters, where CopyParameters::when_changed.
    void parameters_changed() noexcept { replicas_.parameters_changed(); }
    // The source, its parameters, a device for each replica, and that where outputs are gathered.
    Net& module() const noexcept { return module_; }
    std::span<Parameter> parameters() const { return module_.parameters(); }
    std::span<const Device> devices() const noexcept { return replicas_.devices(); }
    const Device& output_device() const noexcept { return output_device_; }

private:
    DataParallel(Net& module, const DataParallelOptions& options,
                 const data_parallel::DeviceAssignment& assignment)
        : module_(module),
          copy_parameters_(options.copy_parameters),
          output_device_(assignment.output),
          replicas_(module, assignment.devices) {}

    void start_forward(std::size_t replicas) {
        active_ = 0;
        shares_.clear();
        output_rows_.clear();
        if (copy_parameters_ == CopyParameters::every_forward) replicas_.parameters_changed();
        replicas_.update(replicas);
    }
    template <class Run>
    auto run_backward(const Run& run) {
        const auto body = [&](std::size_t replica) {
            replicas_.zero_gradients(replica);
            return run(replica);
        };
        if constexpr (std::is_void_v<decltype(run(0))>) {
            replicas_.run(active_, body);
            replicas_.add_gradients(active_);
        } else {
            const auto input_gradients = replicas_.collect(active_, body);
            replicas_.add_gradients(active_);
            return gather(input_gradients, output_device_);
        }
    }

    Net& module_;
    CopyParameters copy_parameters_;
    Device output_device_;
    Replicas<Net> replicas_;
    std::size_t active_ = 0;           // replicas of the last forward; 0: none that has worked
    data_parallel::Rows output_rows_;  // of the last forward
    std::vector<LossShare> shares_;    // of the last forward_loss, until backward_loss
};

// "DataParallel((module): Model((fc): Linear(in_features=5, out_features=2, bias=True)))".
template <class Traits, PrintableModule Net>
auto& operator<<(std::basic_ostream<char, Traits>& out, const DataParallel<Net>& model) {
    out << "DataParallel((module): ";
    data_parallel::print(out, model.module());
    return out << ")";
}

}  // namespace ddp
