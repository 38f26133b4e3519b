// Gradients of 16 bits that are reduced in float32 (ReducerOptions::reduce_in_float32), wherever a
// model lies: what tests on CPU memory and on GPUs share.
#pragma once

#include "tensor/device/device_memory.hpp"

#include <ddp/error.hpp>
#include <ddp/half.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp::testing {

// Of one device; the first parameter is of float32, the others of Half.
template <class Half>
class HalfModel {
public:
    explicit HalfModel(const Device& device) : device_(device) {
        add<float>(50);
        for (const std::size_t elements : {300UL, 1UL, 1'000UL, 77UL}) add<Half>(elements);
        device::finish_all(device_);
    }
    ~HalfModel() { device::finish_all(device_); }
    HalfModel(const HalfModel&) = delete;
    HalfModel& operator=(const HalfModel&) = delete;

    std::span<Parameter> parameters() { return parameters_; }
    // Parameter p's are the value times 2^p.
    void set_gradients(float value) {
        for (std::size_t p = 0; p < parameters_.size(); ++p) {
            set_gradient(parameters_[p], std::ldexp(value, static_cast<int>(p)));
        }
    }
    template <class T>
    std::vector<T> read(const TensorView& tensor) const {
        EXPECT_EQ(tensor.dtype, dtype_of<T>());
        std::vector<T> host(tensor.numel());
        device::copy(device_, host.data(), tensor.data, tensor.bytes(), {});
        device::finish(device_, {});
        return host;
    }

private:
    void set_gradient(const Parameter& parameter, float value) {
        if (parameter.grad.dtype == DType::float32) {
            write(parameter.grad, std::vector<float>(parameter.grad.numel(), value));
        } else {
            write(parameter.grad, std::vector<Half>(parameter.grad.numel(), Half(value)));
        }
    }
    template <class T>
    void add(std::size_t elements) {
        const std::string name = "layer" + std::to_string(parameters_.size());
        parameters_.push_back({name, allocate<T>(elements), allocate<T>(elements)});
    }
    template <class T>
    TensorView allocate(std::size_t elements) {
        memory_.push_back(std::make_unique<device::Buffer>());
        void* const memory = memory_.back()->reserve(device_, elements * sizeof(T));
        device::set_zero(device_, memory, elements * sizeof(T), {});
        return {memory, {static_cast<std::int64_t>(elements)}, dtype_of<T>(), device_};
    }
    template <class T>
    void write(const TensorView& to, const std::vector<T>& from) {
        device::copy(device_, to.data, from.data(), to.bytes(), {});
        device::finish(device_, {});
    }

    Device device_;
    std::vector<std::unique_ptr<device::Buffer>> memory_;
    std::vector<Parameter> parameters_;
};

// 1 on all ranks but the first, which has the next larger value: no Half lies between the two, and
// the average of more ranks than two is one of them. In an order that has the buckets rebuilt.
template <class Half>
void expect_float32_averages(ProcessGroup& group, const Device& device, int steps = 3,
                             double bucket_cap_mb = 0.001) {
    HalfModel<Half> model(device);
    const auto one = Half(1.0F);
    const auto next = Half::from_bits(static_cast<std::uint16_t>(one.bits + 1));
    Reducer reducer(
        model.parameters(), group,
        {.bucket_cap_mb = bucket_cap_mb, .first_bucket_mb = 0.001, .reduce_in_float32 = true});
    EXPECT_THROW(reducer.float32_average(1), UsageError);  // not averaged yet
    const float mean = 1 + (static_cast<float>(next) - 1) / static_cast<float>(group.size());
    for (int step = 0; step < steps; ++step) {
        model.set_gradients(static_cast<float>(group.rank() == 0 ? next : one));
        for (const std::size_t p : {2UL, 4UL, 0UL, 3UL, 1UL}) reducer.mark_ready(p);
        ASSERT_TRUE(reducer.wait());
        for (std::size_t p = 1; p < model.parameters().size(); ++p) {
            const float scale = std::ldexp(1.0F, static_cast<int>(p));
            for (const Half rounded : model.template read<Half>(model.parameters()[p].grad)) {
                ASSERT_EQ(static_cast<float>(rounded), static_cast<float>(Half(scale * mean)));
            }
            for (const float average : model.template read<float>(reducer.float32_average(p))) {
                ASSERT_NEAR(average, scale * mean, scale * 2e-7F) << p << " in step " << step;
            }
        }
        for (const float average : model.template read<float>(model.parameters()[0].grad)) {
            ASSERT_NEAR(average, mean, 2e-7F);
        }
    }
    EXPECT_THROW(reducer.float32_average(0), UsageError);
    EXPECT_THROW(reducer.float32_average(5), UsageError);
}

// A gradient that nobody uses stays as it is, to the bit.
template <class Half>
void expect_unused_gradients_stay(ProcessGroup& group, const Device& device) {
    HalfModel<Half> model(device);
    model.set_gradients(0.3F);
    Reducer reducer(model.parameters(), group,
                    {.reduce_in_float32 = true, .find_unused_parameters = true});
    const std::vector<std::size_t> unused{0, 2, 3};
    for (int step = 0; step < 2; ++step) {
        reducer.start_backward(unused);
        reducer.mark_ready(4);
        reducer.mark_ready(1);
        ASSERT_TRUE(reducer.wait());
        for (const std::size_t p : {2UL, 3UL}) {
            const Half expected(std::ldexp(0.3F, static_cast<int>(p)));
            for (const Half value : model.template read<Half>(model.parameters()[p].grad)) {
                ASSERT_EQ(value.bits, expected.bits);
            }
            EXPECT_THROW(reducer.float32_average(p), UsageError);
        }
    }
}

}  // namespace ddp::testing
