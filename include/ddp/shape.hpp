// Shape: the extents of a tensor.
#pragma once

#include <ddp/export.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>

namespace ddp {

// Up to eight extents, outermost first. No dimension at all is a scalar: one element.
class Shape {
public:
    static constexpr std::size_t max_dims = 8;  // more is a UsageError

    constexpr Shape() = default;
    // Throws UsageError for more than max_dims dimensions or a negative extent.
    constexpr Shape(std::initializer_list<std::int64_t> extents)
        : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}
    constexpr explicit Shape(std::span<const std::int64_t> extents) : dims_(extents.size()) {
        if (dims_ > max_dims) throw_too_many(dims_);
        for (std::size_t dim = 0; dim < dims_; ++dim) {
            if (extents[dim] < 0) throw_negative(extents[dim]);
            extents_[dim] = extents[dim];
        }
    }

    // Outermost first.
    std::span<const std::int64_t> extents() const noexcept { return {extents_.data(), dims_}; }
    std::size_t dims() const noexcept { return dims_; }  // at most max_dims
    // The extent of a dimension below dims().
    std::int64_t operator[](std::size_t dim) const { return extents_[dim]; }
    std::size_t numel() const noexcept {  // elements: the product of the extents
        std::size_t product = 1;
        for (const std::int64_t extent : extents()) product *= static_cast<std::size_t>(extent);
        return product;
    }
    friend bool operator==(const Shape&, const Shape&) = default;

private:
    [[noreturn]] DDP_API static void throw_too_many(std::size_t dims);
    [[noreturn]] DDP_API static void throw_negative(std::int64_t extent);

    std::array<std::int64_t, max_dims> extents_{};
    std::size_t dims_ = 0;
};

DDP_API std::string to_string(const Shape&);  // "[10, 128]"
DDP_API std::ostream& operator<<(std::ostream&, const Shape&);

}  // namespace ddp
