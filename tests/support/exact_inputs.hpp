// Inputs of collectives whose sums are exact in every element type, so that results are compared
// with ==. Rank r's element i is a small integer; products of up to seven of them still fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::testing {

// All ranks' elements there depend on: one of four numbers, in an order without a short period, so
// that data in the wrong place is seen.
inline constexpr std::size_t exact_classes = 4;
inline std::size_t exact_class(std::size_t index) {
    return ((index + 1) * 0x9e3779b97f4a7c15 >> 40) % exact_classes;
}
template <class T>
T exact_value_of_class(int rank, std::size_t which) {
    return static_cast<T>(1 + (static_cast<std::size_t>(rank) * 3 + which) % exact_classes);
}

template <class T>
T exact_value(int rank, std::size_t index) {
    return exact_value_of_class<T>(rank, exact_class(index));
}

template <class T>
std::vector<T> exact_input(int rank, std::size_t elements, std::size_t first = 0) {
    std::vector<T> values(elements);
    for (std::size_t i = 0; i < elements; ++i) values[i] = exact_value<T>(rank, first + i);
    return values;
}

}  // namespace ddp::testing
