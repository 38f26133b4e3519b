// Mean, M2 (the sum of squared distances from the mean) and count of each channel's values, and the
// sums that a backward needs: pure arithmetic, in float64 and in one order whatever the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddp::sync_batch_norm {

// Of elements [samples, channels, inner].
struct Layout {
    std::size_t samples;
    std::size_t channels;
    std::size_t inner;

    std::size_t numel() const { return samples * channels * inner; }
};

// of_channel(c)(at) for each element, by its channel and place. What of_channel returns should hold
// the channel's numbers by value, so that no write can change them: then the loops are vectorised.
template <class OfChannel>
void for_each_element(const Layout& layout, const OfChannel& of_channel) {
    const std::size_t rows = layout.inner == 1 ? layout.samples : 0;
    for (std::size_t at = 0; at < rows * layout.channels; at += layout.channels) {
        for (std::size_t c = 0; c < layout.channels; ++c) of_channel(c)(at + c);
    }
    for (std::size_t piece = rows * layout.channels; piece < layout.samples * layout.channels;
         ++piece) {
        const auto f = of_channel(piece % layout.channels);
        const std::size_t at = piece * layout.inner;
        for (std::size_t i = at; i < at + layout.inner; ++i) f(i);
    }
}

struct Moments {
    explicit Moments(std::size_t channels) : mean(channels, 0), m2(channels, 0) {}

    std::vector<double> mean;
    std::vector<double> m2;
    std::uint64_t count = 0;  // of each channel
};

// Of float or double.
template <class T>
Moments moments_of(const T* input, const Layout& layout);

// Of both together (Chan, Golub, LeVeque).
void merge(Moments& into, const Moments& other);

// As one row of 2 * channels + 1 numbers, and back.
std::vector<double> pack(const Moments& moments);
Moments unpack(std::span<const double> row);

// Of all rows, in the order of the balanced tree over ranks: ((0+1)+(2+3))+...
Moments merge_rows(std::span<const double> rows, std::size_t channels);

// By channel, over samples and inner elements.
struct GradientSums {
    std::vector<double> gradient;    // d loss / d output
    std::vector<double> normalised;  // its product with the normalised input
};
// Of float or double, as all memory here.
template <class T>
GradientSums gradient_sums_of(const T* gradient, const T* input, const Layout& layout,
                              std::span<const double> mean, std::span<const double> inverse_std);

}  // namespace ddp::sync_batch_norm
