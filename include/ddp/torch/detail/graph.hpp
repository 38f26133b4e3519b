// What autograd's graph tells before a backward: which parameters it will come to. Not for users.
#pragma once

#include <ddp/error.hpp>
#include <ddp/reducer_options.hpp>
#include <ddp/torch/detail/gradient.hpp>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <ranges>
#include <span>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ddp::libtorch::detail {

// Calls visit(tensor) for each tensor in what a forward returned: a tensor, or tuples, ranges and
// optionals of such. Others are passed over.
template <class Output, class Visit>
void visit_tensors(const Output& output, const Visit& visit) {
    if constexpr (std::is_base_of_v<torch::Tensor, Output>) {
        if (output.defined()) visit(output);
    } else if constexpr (requires { std::tuple_size<Output>::value; }) {
        std::apply([&](const auto&... part) { (visit_tensors(part, visit), ...); }, output);
    } else if constexpr (requires {
                             { output.has_value() } -> std::same_as<bool>;
                             *output;
                         }) {
        if (output.has_value()) visit_tensors(*output, visit);
    } else if constexpr (std::ranges::range<const Output>) {
        if constexpr (!std::same_as<std::ranges::range_value_t<const Output>, Output>) {
            for (const auto& part : output) visit_tensors(part, visit);
        }
    }
}

// Which parameters a backward will not come to, or may not. Found in the graphs of all forwards
// since the last backward (find_unused_parameters; torch.nn.parallel.DistributedDataParallel looks
// at the last one only), or learned from the first backward (static_graph).
class UnusedParameters {
public:
    UnusedParameters(std::span<const Gradient> gradients, const ReducerOptions& options)
        : finds_(options.find_unused_parameters),
          learns_(options.static_graph),
          is_used_(gradients.size(), false) {
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            index_of_.emplace(gradients[i].accumulator.get(), i);
        }
        if (learns_) list_unused();  // all
    }

    // A backward may begin at this tensor.
    void add_output(const torch::Tensor& output) {
        if (!finds_) return;
        if (std::exchange(taken_, false)) is_used_.assign(is_used_.size(), false);
        knows_output_ = true;
        std::unordered_set<const torch::autograd::Node*> seen;
        std::vector<const torch::autograd::Node*> open{
            torch::autograd::impl::gradient_edge(output).function.get()};
        while (!open.empty()) {
            const torch::autograd::Node* const node = open.back();
            open.pop_back();
            if (node == nullptr || !seen.insert(node).second) continue;
            if (const auto leaf = index_of_.find(node); leaf != index_of_.end()) {
                is_used_[leaf->second] = true;
            }
            for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
        }
    }

    // A backward begins. One more without a forward in between has the same ones.
    void start_backward() {
        if (!finds_) return;
        if (!knows_output_) {
            throw UsageError(
                "libtorch: find_unused_parameters has seen no output of the net; call "
                "model(...) or model.forward(...), not the net itself, or "
                "model.prepare_for_backward(loss) before loss.backward()");
        }
        taken_ = true;
        list_unused();
    }
    void note_gradient(std::size_t index) {
        if (learns_) is_used_[index] = true;
    }
    // Of a backward that is sent.
    void end_backward() {
        if (std::exchange(learns_, false)) list_unused();
    }

    // What the reducer is told.
    std::span<const std::size_t> found() const {
        return finds_ ? std::span<const std::size_t>(unused_) : std::span<const std::size_t>();
    }
    // Those that may get no gradient.
    std::span<const std::size_t> uncertain() const { return unused_; }

private:
    void list_unused() {
        unused_.clear();
        for (std::size_t i = 0; i < is_used_.size(); ++i) {
            if (!is_used_[i]) unused_.push_back(i);
        }
    }

    bool finds_;
    bool learns_;  // until the first backward has been sent
    std::unordered_map<const torch::autograd::Node*, std::size_t> index_of_;
    std::vector<bool> is_used_;  // by parameter
    std::vector<std::size_t> unused_;
    bool knows_output_ = false;
    bool taken_ = false;
};

}  // namespace ddp::libtorch::detail
