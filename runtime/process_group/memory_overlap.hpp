// Whether pieces of memory that are moved together share bytes: each is moved as if it were alone.
#pragma once

#include "base/recycled.hpp"

#include <ddp/tensor_view.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::process_group {

class MemoryRanges {
public:
    MemoryRanges() { ranges_.reserve(4); }
    // Numbered from 0 in the order in which they are added. Empty ones overlap nothing.
    void add(const TensorView& tensor, bool is_written = true);
    // The numbers of two that share bytes, the smaller first; two that are only read may.
    std::optional<std::pair<std::size_t, std::size_t>> find_overlap();

private:
    struct Range {
        std::uintptr_t begin;
        std::uintptr_t end;
        bool on_gpu;
        bool is_written;
        std::size_t number;
    };
    std::vector<Range, base::RecyclingAllocator<Range>> ranges_;
    std::size_t count_ = 0;
};

}  // namespace ddp::process_group
