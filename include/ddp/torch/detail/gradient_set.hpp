// The gradients of a module, between torch and the Reducer; and, where a rank does the work of
// several logical ranks, which gradients torch has for each of them. Not for users.
#pragma once

#include <ddp/error.hpp>
#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>
#include <ddp/shard.hpp>
#include <ddp/torch/detail/gradient.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ddp::libtorch::detail {

class GradientSet {
public:
    GradientSet(std::vector<Gradient> gradients, const ReducerOptions& options,
                const ProcessGroup& group)
        : gradients_(std::move(gradients)) {
        const auto ranks = static_cast<std::size_t>(group.size());
        defined_.resize(std::max(options.logical_ranks / ranks, std::size_t{1}));
        const bool views = options.gradient_as_bucket_view.value_or(false);
        for (Gradient& gradient : gradients_) parameters_.push_back(gradient.to_parameter(views));
    }

    std::span<Parameter> parameters() { return parameters_; }
    Device device() const {
        return parameters_.empty() ? Device{} : parameters_.front().grad.device;
    }
    std::span<const Gradient> all() const { return gradients_; }
    std::size_t size() const { return gradients_.size(); }
    std::size_t logical_ranks() const { return defined_.size(); }

    // Those that torch has already, when there is a reducer.
    void bring_defined(Reducer& reducer) {
        try {
            for (std::size_t i = 0; i < size(); ++i) {
                if (gradients_[i].is_defined()) gradients_[i].bring_to(parameters_[i]);
            }
        } catch (...) {
            leave(reducer);
            throw;
        }
    }
    // Also where a backward function gave none at all: that counts as zeros.
    void bring(std::size_t index) { gradients_[index].bring_or_zero(parameters_[index]); }
    // Those that the next backward may not come to, or all of them.
    void prepare(std::span<const std::size_t> indices) {
        for (const std::size_t i : indices) gradients_[i].bring_or_zero(parameters_[i]);
    }
    void prepare_all() {
        for (std::size_t i = 0; i < size(); ++i) gradients_[i].bring_or_zero(parameters_[i]);
    }
    // After what may have moved them.
    void follow() {
        for (std::size_t i = 0; i < size(); ++i) gradients_[i].follow(parameters_[i]);
    }
    void define(std::size_t index) { gradients_[index].set_defined(true); }

    // Each logical rank of this rank begins with what torch has now. (A gradient that torch adds to
    // zeros may differ in the sign of a zero from one that it sets.)
    void start_logical_ranks() { std::ranges::fill(defined_, defined_now()); }
    void save_defined(Shard logical_rank) { defined_[index_of(logical_rank)] = defined_now(); }
    // The reducer has loaded the elements.
    void load_defined(Shard logical_rank) {
        const std::vector<bool>& defined = defined_[index_of(logical_rank)];
        for (std::size_t i = 0; i < size(); ++i) gradients_[i].set_defined(defined[i]);
    }

    // Before it goes.
    void leave(Reducer& reducer) {
        try {
            reducer.finish_in_flight();
        } catch (const Error&) {  // of a GPU that does nothing more
        }
        for (Gradient& gradient : gradients_) gradient.leave_reducer();
    }

private:
    // Among those of this rank.
    std::size_t index_of(Shard logical_rank) const { return logical_rank.index % logical_ranks(); }
    std::vector<bool> defined_now() const {
        std::vector<bool> defined;
        for (const Gradient& gradient : gradients_) defined.push_back(gradient.is_defined());
        return defined;
    }

    std::vector<Gradient> gradients_;
    std::vector<Parameter> parameters_;       // by gradient; the reducer re-points their memory
    std::vector<std::vector<bool>> defined_;  // by logical rank of this rank, gradient
};

}  // namespace ddp::libtorch::detail
