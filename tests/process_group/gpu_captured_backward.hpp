// A reducer's backward as a graph, beside one that is none. On any GPU, or what stands in for one.
#pragma once

#include "process_group/gpu_graph.hpp"
#include "reducer/gpu_model.hpp"
#include "tensor/device/device_api.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/reducer.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace ddp::testing {

// Backwards that copy their gradients from device memory, where the next ones are put before each:
// on two streams.
class SteppedBackward {
public:
    SteppedBackward(ProcessGroup& group, ReducerOptions options)
        : rank_(group.rank()), where_(group.device()), model_(group, sizes_) {
        options.bucket_cap_mb = options.first_bucket_mb = 0.005;
        reducer_.emplace(model_.parameters(), group, options);
        for (std::size_t p = 0; p < sizes_.size(); ++p) {
            next_[p].reserve(where_, sizes_[p] * sizeof(float));
        }
    }

    void set_next(int step) {
        for (std::size_t p = 0; p < sizes_.size(); ++p) {
            const std::vector<float> values(
                sizes_[p], 0.1F * static_cast<float>(rank_ + step) + static_cast<float>(p));
            device::copy(where_, next_[p].data(), values.data(), sizes_[p] * sizeof(float),
                         copies_);
            device::finish(where_, copies_);
        }
    }
    // Begins and ends on stream().
    void run() {
        order_.put_after(stream_, other_);
        for (std::size_t p = sizes_.size(); p-- > 0;) {
            const TensorView& grad = model_.parameters()[p].grad;
            const Stream at = p % 2 == 0 ? Stream(stream_) : Stream(other_);
            device::copy(where_, grad.data, next_[p].data(), grad.bytes(), at);
            reducer_->mark_ready(p, at);
        }
        EXPECT_TRUE(reducer_->wait(stream_));
        order_.put_after(other_, stream_);
    }
    std::vector<std::vector<float>> averages() {
        std::vector<std::vector<float>> all;
        for (std::size_t p = 0; p < sizes_.size(); ++p) all.push_back(model_.gradient(p, stream_));
        return all;
    }
    Stream stream() const { return stream_; }

private:
    const std::vector<std::size_t> sizes_{300, 1, 1'000, 77, 2'000};
    int rank_;
    Device where_;
    GpuModel model_;
    const GpuStream stream_, other_, copies_;
    device::StreamOrder order_{where_};
    std::vector<device::Buffer> next_{sizes_.size()};
    std::optional<Reducer> reducer_;
};

inline void expect_same_bits_of_captured_backward(ProcessGroup& group,
                                                  const ReducerOptions& options) {
    SteppedBackward backward(group, options);
    for (int step = 0; step < 3; ++step) {  // the first moves the gradients
        backward.set_next(step);
        backward.run();
        finish(backward.stream());
    }
    GpuGraph graph(backward.stream(), [&] { backward.run(); });
    for (int step = 3; step < 6; ++step) {
        backward.set_next(step);
        graph.launch();
        const auto of_the_graph = backward.averages();
        backward.run();
        EXPECT_EQ(of_the_graph, backward.averages()) << "step " << step;
    }
}

}  // namespace ddp::testing
