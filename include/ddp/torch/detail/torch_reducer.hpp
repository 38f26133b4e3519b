// A Reducer over a torch module: keeps torch's gradients, buffers and random generators where and
// as the Reducer wants them, before and after each of its calls. Not for users.
#pragma once

#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>
#include <ddp/torch/detail/gradient_set.hpp>
#include <ddp/torch/detail/graph.hpp>
#include <ddp/torch/detail/module_state.hpp>
#include <ddp/torch/detail/rank_memory.hpp>
#include <ddp/torch/detail/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ddp::libtorch::detail {

class TorchReducer {
public:
    // Collective: see DistributedDataParallel's constructor.
    TorchReducer(ModuleState state, ProcessGroup& group, const ReducerOptions& options)
        : gradients_(std::move(state.gradients), options, group),
          memory_(std::move(state.buffers), random_devices(gradients_.all(), options)),
          unused_(gradients_.all(), options) {
        reducer_.emplace(gradients_.parameters(), group, options, memory_.state());
        gradients_.follow();
        require_same_strides(gradients_.all(), group);
        broadcast_all(state.frozen, group);
        broadcast_all(memory_.buffers(), group);
        if (options.logical_ranks != 0) memory_.seed_all(group, reducer_->state_dict());
        load_state_dict();
        gradients_.bring_defined(*reducer_);  // at last: where all else throws, torch has its own
    }
    ~TorchReducer() { gradients_.leave(*reducer_); }
    TorchReducer(const TorchReducer&) = delete;
    TorchReducer& operator=(const TorchReducer&) = delete;

    Reducer& reducer() { return *reducer_; }
    std::span<const Gradient> gradients() const { return gradients_.all(); }
    void set_no_sync(bool on) { no_sync_ = on; }
    void add_output(const torch::Tensor& output) { unused_.add_output(output); }

    // No gradient of this backward has been added yet.
    void start_backward() {
        if (joining_ && !no_sync_) {
            memory_.keep_buffers_in_place();
            reducer_->start_forward(stream());
        }
        unused_.start_backward();
        if (has_logical_ranks()) {
            gradients_.prepare_all();
            if (std::exchange(is_first_logical_rank_, false)) gradients_.start_logical_ranks();
        } else {
            gradients_.prepare(unused_.uncertain());
        }
        reducer_->start_backward(unused_.found(), stream());
    }

    void mark_ready(std::size_t index) {
        if (no_sync_ && !has_logical_ranks()) return;  // not sent, not saved
        gradients_.bring(index);
        unused_.note_gradient(index);
        reducer_->mark_ready(index, stream());
    }

    bool wait() {
        if (!no_sync_) unused_.end_backward();
        memory_.keep_buffers_in_place();
        if (has_logical_ranks()) {
            gradients_.save_defined(reducer_->logical_rank());
            memory_.save_generators();
        }
        const bool averaged = wait_and_follow();
        if (has_logical_ranks()) memory_.load_generators();
        if (averaged) {
            for (std::size_t i = 0; i < gradients_.size(); ++i) {
                if (reducer_->was_averaged(i)) gradients_.define(i);
            }
            // Now, not before the next forward: the adapter does not see net->forward().
            if (!joining_) reducer_->start_forward(stream());
        } else if (has_logical_ranks()) {
            gradients_.load_defined(reducer_->logical_rank());
        }
        is_first_logical_rank_ = averaged;
        return averaged;
    }

    void join(const std::function<void()>& train, const JoinOptions& options) {
        gradients_.follow();
        memory_.keep_buffers_in_place();
        joining_ = true;
        const AtEnd end{[this] {
            joining_ = false;
            gradients_.follow();
        }};
        reducer_->join(train, options);
    }

    std::vector<NamedTensor> state_dict() {
        memory_.save_generators();
        return reducer_->state_dict();
    }
    void load_state_dict() {
        memory_.keep_buffers_in_place();
        reducer_->load_state_dict();
        reducer_->start_forward(stream());  // all logical ranks get the module's buffers
        memory_.load_generators();
    }

private:
    template <class Call>
    struct AtEnd {
        explicit AtEnd(Call at_end) : call(std::move(at_end)) {}
        ~AtEnd() { call(); }
        Call call;
    };
    static std::set<std::string> random_devices(std::span<const Gradient> gradients,
                                                const ReducerOptions& options) {
        if (options.logical_ranks == 0) return {};
        std::set<std::string> devices{"cpu"};
        for (const Gradient& gradient : gradients) devices.insert(gradient.value.device().str());
        return devices;
    }

    bool wait_and_follow() {
        const AtEnd follow{[this] { gradients_.follow(); }};  // it may throw after a move
        return reducer_->wait(stream());
    }
    bool has_logical_ranks() const { return gradients_.logical_ranks() > 1; }
    Stream stream() { return current_stream(gradients_.device()); }

    GradientSet gradients_;
    RankMemory memory_;
    UnusedParameters unused_;
    std::optional<Reducer> reducer_;
    bool is_first_logical_rank_ = true;  // since gradients were last averaged
    bool joining_ = false;
    bool no_sync_ = false;
};

}  // namespace ddp::libtorch::detail
