// Dataset and Sampler: what a DataLoader asks of the two things it is made from. Any type that has
// these members will do; nothing to derive from. Source: torch.utils.data's Dataset and Sampler.
#pragma once

#include <ddp/collate.hpp>

#include <concepts>
#include <cstddef>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp {

// A data set that makes whole batches: batch(indices) returns whatever the training loop wants.
template <class T>
concept BatchDataset = requires(const T& data, std::span<const std::size_t> indices) {
    { data.size() } -> std::convertible_to<std::size_t>;
    { data.batch(indices) } -> std::movable;
};
// A data set of single samples: DefaultCollate, or a callable of yours, makes a batch of them.
template <class T>
concept SampleDataset = requires(const T& data, std::size_t index) {
    { data.size() } -> std::convertible_to<std::size_t>;
    std::remove_cvref_t<decltype(data[index])>(data[index]);  // can be copied into a batch
};
// Either; batch() is taken when there are both and no callable of yours. These const members are
// called from the loader's threads: while the training loop runs, and with more than one worker
// also several at once.
template <class T>
concept Dataset = BatchDataset<T> || SampleDataset<T>;

// Gives the indices of an epoch, such as DistributedSampler. size() may change between epochs;
// parts(), where there is one, stays the same: the indices are then so many equally long parts, one
// after the other. ranks(), where there is one, says how many parts all ranks have together.
template <class T>
concept Sampler = std::ranges::input_range<const T> && requires(const T& sampler) {
    { sampler.size() } -> std::convertible_to<std::size_t>;
    { *sampler.begin() } -> std::convertible_to<std::size_t>;
};

namespace data {

template <SampleDataset Data>
using SampleOf = std::remove_cvref_t<decltype(std::declval<const Data&>()[std::size_t{}])>;

// One batch: what batch(indices) makes of it, or `collate` of the samples.
template <Dataset Data, class CollateBatch>
auto make_batch(const Data& data, std::span<const std::size_t> indices,
                const CollateBatch& collate) {
    if constexpr (BatchDataset<Data> && std::is_same_v<CollateBatch, DefaultCollate>) {
        return data.batch(indices);
    } else {
        static_assert(SampleDataset<Data>, "collate wants single samples, by operator[]");
        static_assert(Collate<CollateBatch, SampleOf<Data>>,
                      "collate must take a std::vector of samples, also as a const object");
        std::vector<SampleOf<Data>> samples;
        samples.reserve(indices.size());
        for (const std::size_t index : indices) samples.push_back(data[index]);
        return collate(std::move(samples));
    }
}

template <Sampler S>
std::size_t parts_of(const S& sampler) {
    if constexpr (requires { sampler.parts(); }) return sampler.parts();
    return 1;
}
template <Sampler S>
std::size_t ranks_of(const S& sampler) {
    if constexpr (requires { sampler.ranks(); }) return sampler.ranks();
    return 1;
}

}  // namespace data

}  // namespace ddp
