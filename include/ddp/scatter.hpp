// scatter and gather: a batch cut along dimension 0 for several devices, and what came of the
// pieces joined again. Sources: torch.nn.parallel.scatter and gather.
#pragma once

#include <ddp/device.hpp>
#include <ddp/export.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp {

namespace data_parallel {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
concept TupleLike = requires {
    std::tuple_size<T>::value;
};

// Calls f with each tensor in the value, first to last, and returns the value with what f returned
// in their places. What is no tensor, tuple (pair, array) or vector of these is copied as it is,
// with any tensors in it whole: a map, an optional, a struct.
template <class T, class F>
T map_tensors(const T& value, F& f) {
    static_assert(!std::is_same_v<T, TensorView>,
                  "a TensorView is not scattered: it owns nothing; pass a ddp::Tensor");
    if constexpr (std::is_same_v<T, Tensor>) {
        return f(value);
    } else if constexpr (TupleLike<T>) {
        return std::apply([&f](const auto&... parts) { return T{map_tensors(parts, f)...}; },
                          value);
    } else if constexpr (is_vector<T>) {
        T mapped;
        mapped.reserve(value.size());
        for (const auto& part : value) mapped.push_back(map_tensors(part, f));
        return mapped;
    } else {
        return value;
    }
}

template <class T>
std::vector<Tensor> tensors_of(const T& value) {
    std::vector<Tensor> tensors;
    auto collect = [&tensors](const Tensor& tensor) { return tensors.emplace_back(tensor); };
    map_tensors(value, collect);
    return tensors;
}
template <class T>
T with_tensors(const T& value, std::span<const Tensor> tensors) {
    auto next = tensors.begin();
    auto take = [&next](const Tensor&) { return *next++; };
    return map_tensors(value, take);
}

// How many rows of each tensor each device gets: [tensor][device]; `scalar` for a tensor without
// dimensions, which gather() made an element.
using Rows = std::vector<std::vector<std::int64_t>>;
inline constexpr std::int64_t scalar = -1;
DDP_API Rows chunk_rows(std::span<const Tensor> tensors, std::size_t devices);
DDP_API Rows rows_of(std::span<const std::vector<Tensor>> parts);  // as they are cut already
// pieces[device][tensor]; UsageError when the tensors have not as many rows.
DDP_API std::vector<std::vector<Tensor>> cut(std::span<const Tensor> tensors, const Rows& rows,
                                             std::span<const Device> devices);
DDP_API Tensor join(std::span<const Tensor> pieces, const Device& device);
DDP_API void require_equal_sizes(std::span<const std::vector<Tensor>> parts);
DDP_API void require_tensors(const Rows& output);  // UsageError when forward returned none

template <class T>
Rows rows_of(const std::vector<T>& parts) {
    std::vector<std::vector<Tensor>> tensors;
    tensors.reserve(parts.size());
    for (const T& part : parts) tensors.push_back(tensors_of(part));
    return rows_of(std::span<const std::vector<Tensor>>(tensors));
}
template <class T>
std::vector<T> scatter_rows(const T& value, std::span<const Tensor> tensors, const Rows& rows,
                            std::span<const Device> devices) {
    std::vector<T> parts;
    for (const auto& pieces : cut(tensors, rows, devices)) {
        parts.push_back(with_tensors(value, std::span<const Tensor>(pieces)));
    }
    return parts;
}

}  // namespace data_parallel

// Part i is for devices[i]: its rows of each tensor, there, and copies of all that is no tensor.
// Tensors are looked for in tuples, pairs, arrays and vectors alone: one in a map, an optional or a
// struct is not cut.
// torch.chunk's rule: ceil(rows / devices) each, which may leave none for the last devices: 30 rows
// over 8 are 4, 4, 4, 4, 4, 4, 4, 2, and 10 over 8 are 2, 2, 2, 2, 2. Then, and for 0 rows (all of
// them for the first device), there are fewer parts than devices. A piece that stays on its device
// shares the tensor's memory. Without any tensor each device gets a copy, but of an empty tuple the
// first alone. Throws UsageError for a tensor without dimensions, and for tensors that differ in
// rows: torch drops the rest of the longer ones.
template <class T>
std::vector<T> scatter(const T& value, std::span<const Device> devices) {
    const std::vector<Tensor> tensors = data_parallel::tensors_of(value);
    if (!tensors.empty()) {
        return data_parallel::scatter_rows(
            value, tensors, data_parallel::chunk_rows(tensors, devices.size()), devices);
    }
    return std::vector<T>(std::is_same_v<T, std::tuple<>> ? 1 : devices.size(), value);
}

// The parts' tensors, one after the other along dimension 0, on the device; of scalars a vector.
// A single part that is there already is returned as it is. Tuples, and vectors of tensors, are
// gathered member by member; what is no tensor, such as a number, becomes a std::vector of all
// parts'. Throws UsageError for no part, and for tensors that differ in more than rows.
template <class T>
auto gather(const std::vector<T>& parts, const Device& device) {
    const auto members = [&]<class Take>(Take take) {
        std::vector<std::decay_t<decltype(take(parts.front()))>> taken;
        taken.reserve(parts.size());
        for (const T& part : parts) taken.push_back(take(part));
        return gather(taken, device);
    };
    if constexpr (std::is_same_v<T, Tensor>) {
        return data_parallel::join(parts, device);
    } else if constexpr (data_parallel::TupleLike<T>) {
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
            return std::tuple{members([](const T& part) { return std::get<I>(part); })...};
        }
        (std::make_index_sequence<std::tuple_size_v<T>>{});
    } else if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
        data_parallel::require_equal_sizes(parts);
        std::vector<Tensor> gathered;
        for (std::size_t i = 0; i < parts.front().size(); ++i) {
            gathered.push_back(members([i](const T& part) { return part[i]; }));
        }
        return gathered;
    } else {
        return parts;
    }
}

}  // namespace ddp
