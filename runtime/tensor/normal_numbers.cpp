// Box and Muller's method on MT19937's bits, in the order in which ATen's normal kernels take them:
// fewer than 16 values one pair at a time, more in blocks of 16 of which the second half is the
// other's partner, and the last 16 values anew where they are no whole block. All is computed in
// double and rounded once, so that the result does not hang on the processor.
#include "tensor/normal_numbers.hpp"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <random>

namespace ddp::device {
namespace {

constexpr std::size_t block = 16;

class Uniform {
public:
    explicit Uniform(std::uint64_t seed) : random_(static_cast<std::uint32_t>(seed)) {}
    // In [0, 1), with as many bits as a value of the type has.
    void next(float& value) { value = static_cast<float>(random_() & 0xffffffU) * 0x1p-24F; }
    void next(double& value) {
        const std::uint64_t high = random_();
        const std::uint64_t bits = (high << 32U | random_()) & ((std::uint64_t{1} << 53U) - 1);
        value = static_cast<double>(bits) * 0x1p-53;
    }

private:
    std::mt19937 random_;
};

struct Pair {
    double radius;
    double angle;
    double first() const { return radius * std::cos(angle); }
    double second() const { return radius * std::sin(angle); }
};

template <class T>
void fill_few(std::span<T> values, Uniform& uniform) {
    for (std::size_t at = 0; at < values.size(); at += 2) {
        double turn = 0;
        double length = 0;
        uniform.next(turn);
        uniform.next(length);
        const Pair pair{std::sqrt(-2 * std::log1p(-length)), 2 * std::numbers::pi * turn};
        values[at] = static_cast<T>(pair.first());
        if (at + 1 < values.size()) values[at + 1] = static_cast<T>(pair.second());
    }
}

// From uniform to normal.
template <class T>
void transform(std::span<T> values) {
    for (std::size_t at = 0; at < block / 2; ++at) {
        T& first = values[at];
        T& second = values[at + block / 2];
        const double length = 1 - static_cast<double>(first);  // above 0: it has a logarithm
        const Pair pair{std::sqrt(-2 * std::log(length)), 2 * std::numbers::pi * second};
        first = static_cast<T>(pair.first());
        second = static_cast<T>(pair.second());
    }
}

template <class T>
void fill(std::span<T> values, std::uint64_t seed) {
    Uniform uniform(seed);
    if (values.size() < block) {
        fill_few(values, uniform);
        return;
    }
    for (T& value : values) uniform.next(value);
    for (std::size_t at = 0; at + block <= values.size(); at += block) {
        transform(values.subspan(at, block));
    }
    if (values.size() % block == 0) return;
    const std::span<T> last = values.last(block);
    for (T& value : last) uniform.next(value);
    transform(last);
}

}  // namespace

void fill_normal(std::span<float> values, std::uint64_t seed) { fill(values, seed); }

void fill_normal(std::span<double> values, std::uint64_t seed) { fill(values, seed); }

}  // namespace ddp::device
