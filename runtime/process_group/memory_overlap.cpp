#include "process_group/memory_overlap.hpp"

#include <algorithm>
#include <utility>

namespace ddp::process_group {

void MemoryRanges::add(const TensorView& tensor, bool is_written) {
    const std::size_t number = count_++;
    if (tensor.bytes() == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data);
    const bool on_gpu = tensor.device.type == DeviceType::cuda;
    ranges_.push_back({begin, begin + tensor.bytes(), on_gpu, is_written, number});
}

std::optional<std::pair<std::size_t, std::size_t>> MemoryRanges::find_overlap() {
    const auto place = [](const Range& range) { return std::pair(range.on_gpu, range.begin); };
    // Tensors of one allocation come in order.
    if (!std::ranges::is_sorted(ranges_, {}, place)) std::ranges::stable_sort(ranges_, {}, place);
    const Range* read = nullptr;     // the one that ends last, so far
    const Range* written = nullptr;  // likewise
    for (const Range& range : ranges_) {
        for (const Range* before : {written, range.is_written ? read : nullptr}) {
            if (before == nullptr || before->on_gpu != range.on_gpu) continue;
            if (range.begin < before->end) return std::minmax(before->number, range.number);
        }
        const Range*& last = range.is_written ? written : read;
        if (last == nullptr || last->on_gpu != range.on_gpu || last->end < range.end) {
            last = &range;
        }
    }
    return std::nullopt;
}

}  // namespace ddp::process_group
