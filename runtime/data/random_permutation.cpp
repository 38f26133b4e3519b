// ATen's randperm_cpu: a Fisher-Yates shuffle, since 2025 another one for large n. Not
// std::shuffle: it may use the random numbers in any way it likes. Nearly all time goes into
// waiting for memory, so the order is packed and the indices of coming swaps are fetched ahead.
#include "data/random_permutation.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ddp::data {

namespace {

constexpr std::size_t huge_from = std::size_t{8} << 20;  // bytes

// An order of numbers that fit into Word, in the memory of a vector that becomes the result.
template <class Word>
class PackedOrder {
public:
    explicit PackedOrder(std::vector<std::size_t>& memory)
        : bytes_(reinterpret_cast<std::byte*>(memory.data())) {}

    std::size_t get(std::size_t i) const {
        Word word;
        std::memcpy(&word, at(i), sizeof word);
        return word;
    }
    void set(std::size_t i, std::size_t value) {
        const auto word = static_cast<Word>(value);
        std::memcpy(at(i), &word, sizeof word);
    }
    void fetch(std::size_t i) const { __builtin_prefetch(at(i), 1); }

private:
    std::byte* at(std::size_t i) const { return bytes_ + i * sizeof(Word); }

    std::byte* bytes_;
};

// Calls visit(i, index(i)) for i = 0 .. steps - 1. index() is called in that order too, but a block
// or two earlier, and what lies there is on its way until then.
template <class Order, class Index, class Visit>
void walk(const Order& order, std::size_t steps, const Index& index, const Visit& visit) {
    constexpr std::size_t block = 64;
    std::array<std::array<std::size_t, block>, 2> blocks;
    const auto fetch = [&](std::size_t first) {
        auto& coming = blocks[first / block % 2];
        const std::size_t count = std::min(block, steps - first);
        for (std::size_t j = 0; j < count; ++j) {
            coming[j] = index(first + j);
            order.fetch(coming[j]);
        }
    };
    if (steps > 0) fetch(0);
    for (std::size_t first = 0; first < steps; first += block) {
        if (first + block < steps) fetch(first + block);
        const auto& now = blocks[first / block % 2];
        const std::size_t count = std::min(block, steps - first);
        for (std::size_t j = 0; j < count; ++j) visit(first + j, now[j]);
    }
}

template <class Word>
void shuffle_before_2025(PackedOrder<Word> order, std::size_t n, TorchGenerator& generator) {
    for (std::size_t i = 0; i < n; ++i) order.set(i, i);
    const auto index = [&](std::size_t i) -> std::size_t {
        const Word left = static_cast<Word>(n - i);  // divided in Word: 32 bits are much faster
        return i + generator.random() % left;
    };
    const auto swap = [&](std::size_t i, std::size_t other) {
        const std::size_t value = order.get(i);
        order.set(i, order.get(other));
        order.set(other, value);
    };
    walk(order, n - 1, index, swap);
}

template <class Word>
void shuffle_since_2025(PackedOrder<Word> order, std::size_t n, TorchGenerator& generator) {
    const auto index = [&](std::size_t i) -> std::size_t { return generator.random64() % (i + 1); };
    const auto move_in = [&](std::size_t i, std::size_t other) {
        order.set(i, other == i ? i : order.get(other));
        order.set(other, i);
    };
    walk(order, n, index, move_in);
}

// Moves the elements of the slice to the front.
template <class Word>
void move_to_front(PackedOrder<Word> order, std::size_t n, const StridedSlice& slice) {
    std::vector<std::size_t> wrapped;  // read before the front is written over
    std::size_t straight = slice.count;
    for (; straight > 0; --straight) {
        const std::size_t index = slice.first + (straight - 1) * slice.stride;
        if (index < n) break;
        wrapped.push_back(order.get(index % n));
    }
    for (std::size_t k = 0; k < straight; ++k) {
        order.set(k, order.get(slice.first + k * slice.stride));
    }
    for (std::size_t k = straight; k < slice.count; ++k) {
        order.set(k, wrapped[slice.count - 1 - k]);
    }
}

// Asks for pages of 2 MiB, which are fewer to find on a random walk. Where there are none, nothing
// is lost.
void prefer_huge_pages(const std::vector<std::size_t>& memory) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::uintptr_t first = (begin + page - 1) / page * page;
    const std::uintptr_t last = (begin + memory.capacity() * sizeof(std::size_t)) / page * page;
    if (first < last) {
        ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
    }
}

template <class Word>
std::vector<std::size_t> permutation(std::size_t n, const StridedSlice& slice,
                                     TorchGenerator& generator, RandpermEra era) {
    constexpr std::size_t packed = sizeof(std::size_t) / sizeof(Word);
    const std::size_t words = std::max((n + packed - 1) / packed, slice.count);
    std::vector<std::size_t> result;
    result.reserve(words);
    if (words * sizeof(std::size_t) >= huge_from) prefer_huge_pages(result);
    result.resize(words);
    PackedOrder<Word> order{result};
    if (era == RandpermEra::since_2025 && n >= randperm_changes_at) {
        shuffle_since_2025(order, n, generator);
    } else {
        shuffle_before_2025(order, n, generator);
    }
    move_to_front(order, n, slice);
    // From the end, as element k lies in or before word k.
    for (std::size_t k = slice.count; k-- > 0;) result[k] = order.get(k);
    result.resize(slice.count);
    if (result.capacity() / 2 > result.size()) result.shrink_to_fit();
    return result;
}

}  // namespace

std::vector<std::size_t> random_permutation(std::size_t n, const StridedSlice& slice,
                                            TorchGenerator& generator, RandpermEra era) {
    if (n == 0) return {};
    if (n >> 32 == 0) return permutation<std::uint32_t>(n, slice, generator, era);
    return permutation<std::uint64_t>(n, slice, generator, era);
}

std::vector<std::size_t> random_permutation(std::size_t n, std::uint64_t seed, RandpermEra era) {
    TorchGenerator generator{seed};
    return random_permutation(n, {.count = n}, generator, era);
}

}  // namespace ddp::data
