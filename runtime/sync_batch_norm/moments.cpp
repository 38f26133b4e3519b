#include "sync_batch_norm/moments.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace ddp::sync_batch_norm {
namespace {

// The order of additions is that of the lanes, whatever the width of the machine's vectors.
constexpr std::size_t lanes = 8;
using Lanes = std::array<double, lanes>;

double total(const Lanes& sums) {
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// term(i) for i < count, added up.
template <class Term>
double sum_of(std::size_t count, const Term& term) {
    Lanes sums{};
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
    }
    for (std::size_t lane = 0; i < count; ++i, ++lane) sums[lane] += term(i);
    return total(sums);
}

struct Piece {
    double mean;
    double m2;
};

// Of the values' distances from `origin`, which is one of them: then no sum is large where only the
// values are.
template <class T>
Piece moments_of_piece(const T* piece, std::size_t count, double origin) {
    const auto distance = [&](std::size_t i) { return static_cast<double>(piece[i]) - origin; };
    if (count == 1) return {distance(0), 0};
    const double mean = sum_of(count, distance) / static_cast<double>(count);
    const double m2 = sum_of(count, [&](std::size_t i) {
        const double from_mean = distance(i) - mean;
        return from_mean * from_mean;
    });
    return {mean, m2};
}

// What merging takes of the counts: the other's part of the values, and the factor of the means'
// squared distance.
struct Weights {
    Weights(std::uint64_t into, std::uint64_t other)
        : part(static_cast<double>(other) / static_cast<double>(into + other)),
          distance(static_cast<double>(into) * part) {}
    double part;
    double distance;
};

}  // namespace

template <class T>
Moments moments_of(const T* input, const Layout& layout) {
    Moments moments(layout.channels);
    if (layout.numel() == 0) return moments;
    std::vector<double> origins(layout.channels);
    for (std::size_t c = 0; c < layout.channels; ++c) {
        origins[c] = static_cast<double>(input[c * layout.inner]);
    }
    for (std::size_t n = 0; n < layout.samples; ++n) {
        const Weights weights(moments.count, layout.inner);
        const T* const sample = input + n * layout.channels * layout.inner;
        for (std::size_t c = 0; c < layout.channels; ++c) {
            const Piece piece =
                moments_of_piece(sample + c * layout.inner, layout.inner, origins[c]);
            const double distance = piece.mean - moments.mean[c];
            moments.mean[c] += distance * weights.part;
            moments.m2[c] += piece.m2 + distance * distance * weights.distance;
        }
        moments.count += layout.inner;
    }
    for (std::size_t c = 0; c < layout.channels; ++c) moments.mean[c] += origins[c];
    return moments;
}

void merge(Moments& into, const Moments& other) {
    if (other.count == 0) return;
    if (into.count == 0) {
        into = other;
        return;
    }
    const Weights weights(into.count, other.count);
    for (std::size_t c = 0; c < into.mean.size(); ++c) {
        const double distance = other.mean[c] - into.mean[c];
        into.mean[c] += distance * weights.part;
        into.m2[c] += other.m2[c] + distance * distance * weights.distance;
    }
    into.count += other.count;
}

std::vector<double> pack(const Moments& moments) {
    std::vector<double> row = moments.mean;
    row.insert(row.end(), moments.m2.begin(), moments.m2.end());
    row.push_back(static_cast<double>(moments.count));
    return row;
}

Moments unpack(std::span<const double> row) {
    const std::size_t channels = row.size() / 2;
    Moments moments(channels);
    std::ranges::copy(row.first(channels), moments.mean.begin());
    std::ranges::copy(row.subspan(channels, channels), moments.m2.begin());
    moments.count = static_cast<std::uint64_t>(row.back());
    return moments;
}

Moments merge_rows(std::span<const double> rows, std::size_t channels) {
    const std::size_t width = 2 * channels + 1;
    std::vector<Moments> ranks;
    for (std::size_t at = 0; at < rows.size(); at += width) {
        ranks.push_back(unpack(rows.subspan(at, width)));
    }
    for (std::size_t step = 1; step < ranks.size(); step *= 2) {
        for (std::size_t r = 0; r + step < ranks.size(); r += 2 * step) {
            merge(ranks[r], ranks[r + step]);
        }
    }
    return std::move(ranks.front());
}

namespace {

template <class T>
void add_pieces(GradientSums& sums, const T* gradient, const T* input, const Layout& layout,
                std::span<const double> mean) {
    for (std::size_t piece = 0; piece < layout.samples * layout.channels; ++piece) {
        const std::size_t c = piece % layout.channels;
        const T* const from = gradient + piece * layout.inner;
        const T* const values = input + piece * layout.inner;
        const double middle = mean[c];
        sums.gradient[c] +=
            sum_of(layout.inner, [&](std::size_t i) { return static_cast<double>(from[i]); });
        sums.normalised[c] += sum_of(layout.inner, [&](std::size_t i) {
            return static_cast<double>(from[i]) * (static_cast<double>(values[i]) - middle);
        });
    }
}

template <class T>
void add_rows(GradientSums& sums, const T* gradient, const T* input, const Layout& layout,
              std::span<const double> mean) {
    for (std::size_t at = 0; at < layout.numel(); at += layout.channels) {
        for (std::size_t c = 0; c < layout.channels; ++c) {
            const auto from = static_cast<double>(gradient[at + c]);
            sums.gradient[c] += from;
            sums.normalised[c] += from * (static_cast<double>(input[at + c]) - mean[c]);
        }
    }
}

}  // namespace

template <class T>
GradientSums gradient_sums_of(const T* gradient, const T* input, const Layout& layout,
                              std::span<const double> mean, std::span<const double> inverse_std) {
    GradientSums sums{std::vector<double>(layout.channels), std::vector<double>(layout.channels)};
    if (layout.inner == 1) {
        add_rows(sums, gradient, input, layout, mean);
    } else {
        add_pieces(sums, gradient, input, layout, mean);
    }
    for (std::size_t c = 0; c < layout.channels; ++c) sums.normalised[c] *= inverse_std[c];
    return sums;
}

template Moments moments_of(const float*, const Layout&);
template Moments moments_of(const double*, const Layout&);
template GradientSums gradient_sums_of(const float*, const float*, const Layout&,
                                       std::span<const double>, std::span<const double>);
template GradientSums gradient_sums_of(const double*, const double*, const Layout&,
                                       std::span<const double>, std::span<const double>);

}  // namespace ddp::sync_batch_norm
