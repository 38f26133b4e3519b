// How a DataLoader makes a batch of single samples, and moves it to pinned memory. Source:
// torch.utils.data's default_collate and pin_memory.
#pragma once

#include <ddp/export.hpp>
#include <ddp/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp {

// What makes a batch of a data set's samples, instead of DefaultCollate. Called by the loader's
// threads, with more than one worker by several at once.
template <class T, class Sample>
concept Collate = requires(const T& collate, std::vector<Sample> samples) {
    { collate(std::move(samples)) } -> std::movable;
};

namespace data {

// [2, 3] samples become [n, 2, 3]. Throws UsageError when they differ in shape, dtype or device.
DDP_API Tensor stack(std::span<const Tensor> samples);

template <class T>
constexpr bool is_tuple = false;
template <class... Ts>
constexpr bool is_tuple<std::tuple<Ts...>> = true;
template <class First, class Second>
constexpr bool is_tuple<std::pair<First, Second>> = true;
template <class T>
constexpr bool is_vector = false;
template <class T>
constexpr bool is_vector<std::vector<T>> = true;

}  // namespace data

// Tensors are stacked into one; pairs and tuples become a tuple of what is made of their members;
// all other samples stay a std::vector of them.
struct DefaultCollate {
    template <class Sample>
    auto operator()(std::vector<Sample> samples) const {
        if constexpr (std::is_same_v<Sample, Tensor>) {
            return data::stack(samples);
        } else if constexpr (data::is_tuple<Sample>) {
            return members(std::move(samples),
                           std::make_index_sequence<std::tuple_size_v<Sample>>{});
        } else {
            return samples;
        }
    }

private:
    template <class Sample, std::size_t... I>
    auto members(std::vector<Sample> samples, std::index_sequence<I...>) const {
        return std::make_tuple((*this)(member<I>(samples))...);
    }
    template <std::size_t I, class Sample>
    static auto member(std::vector<Sample>& samples) {
        std::vector<std::tuple_element_t<I, Sample>> values;
        values.reserve(samples.size());
        for (Sample& sample : samples) values.push_back(std::get<I>(std::move(sample)));
        return values;
    }
};

namespace data {

template <class Batch>
void pin(Batch& batch) {
    if constexpr (std::is_same_v<Batch, Tensor>) {
        if (batch.device().type == DeviceType::cpu) batch = batch.pin_memory();
    } else if constexpr (requires { batch = std::as_const(batch).pin_memory(); }) {
        batch = std::as_const(batch).pin_memory();
    } else if constexpr (is_vector<Batch>) {
        if constexpr (std::is_class_v<typename Batch::value_type>) {
            for (auto& item : batch) pin(item);
        }
    } else if constexpr (is_tuple<Batch>) {
        std::apply([](auto&... items) { (pin(items), ...); }, batch);
    }
}

// Whether one of its tensors is.
template <class Batch>
bool is_on_gpu(const Batch& batch) {
    if constexpr (std::is_same_v<Batch, Tensor>) {
        return batch.device().type == DeviceType::cuda;
    } else if constexpr (is_vector<Batch>) {
        if constexpr (std::is_class_v<typename Batch::value_type>) {
            return std::ranges::any_of(batch, [](const auto& item) { return is_on_gpu(item); });
        }
    } else if constexpr (is_tuple<Batch>) {
        return std::apply([](const auto&... items) { return (is_on_gpu(items) || ...); }, batch);
    }
    return false;
}

}  // namespace data

}  // namespace ddp
