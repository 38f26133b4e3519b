// Many tensors in one operation: packed into one piece of memory while the operation runs.
#include "process_group/call_source.hpp"
#include "process_group/memory_overlap.hpp"
#include "process_group/process_group_impl.hpp"

#include <ddp/error.hpp>

#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

namespace ddp {
namespace {

using backends::Call;
using backends::Collective;

std::size_t total_bytes(std::span<const TensorView> tensors) {
    return std::accumulate(
        tensors.begin(), tensors.end(), std::size_t{0},
        [](std::size_t sum, const TensorView& tensor) { return sum + tensor.bytes(); });
}

void pack(std::span<const TensorView> tensors, std::byte* to) {
    for (const TensorView& tensor : tensors) {
        if (tensor.bytes() > 0) std::memcpy(to, tensor.data, tensor.bytes());
        to += tensor.bytes();
    }
}

void unpack(std::span<const TensorView> tensors, const std::byte* from) {
    for (const TensorView& tensor : tensors) {
        if (tensor.bytes() > 0) std::memcpy(tensor.data, from, tensor.bytes());
        from += tensor.bytes();
    }
}

// Runs `call` in place on all of the tensors as one.
process_group::CollectiveOperation::Body on_all(std::span<const TensorView> tensors,
                                                const Call& call) {
    return [list = std::vector<TensorView>(tensors.begin(), tensors.end()), call](
               backends::Backend& backend, std::uint64_t sequence, const base::Deadline& deadline) {
        const auto memory = std::make_unique_for_overwrite<std::byte[]>(call.bytes());
        pack(list, memory.get());
        Call packed = call;
        packed.input = packed.output = memory.get();
        backend.run(packed, sequence, deadline);
        unpack(list, memory.get());
    };
}

// Of the same memory once more: it would be summed twice, but may be copied twice, as a buffer with
// two names is.
enum class Repeated { refused, taken };

void require_together(const process_group::DeviceDispatch& dispatch,
                      std::span<const TensorView> tensors, const char* operation,
                      Repeated repeated) {
    process_group::MemoryRanges ranges;
    std::set<std::pair<const void*, std::size_t>> seen;
    for (const TensorView& tensor : tensors) {
        dispatch.require_reachable(tensor, operation);
        dispatch.require_one_device(tensors[0], tensor, operation);
        const bool is_new = seen.emplace(tensor.data, tensor.bytes()).second;
        const bool counts = is_new || repeated == Repeated::refused;
        ranges.add(counts ? tensor : TensorView(nullptr, {0}, tensor.dtype));
    }
    if (const auto both = ranges.find_overlap()) {
        throw UsageError(std::string(operation) + ": tensors " + std::to_string(both->first) +
                         " and " + std::to_string(both->second) +
                         " of the list overlap; give each its own memory");
    }
}

bool is_on_gpu(std::span<const TensorView> tensors) {
    return !tensors.empty() && tensors[0].device.type == DeviceType::cuda;
}

// There they need no packing: NCCL takes many as one.
std::vector<Call> one_by_one(std::span<const TensorView> tensors, const Call& call) {
    std::vector<Call> calls;
    for (const TensorView& tensor : tensors) {
        Call& one = calls.emplace_back(call);
        one.elements = tensor.bytes() / size_of(call.dtype);
        one.input = one.output = tensor.data;
    }
    return calls;
}

}  // namespace

Work ProcessGroup::all_reduce_coalesced(std::span<const TensorView> tensors, ReduceOp op,
                                        Stream stream, const CallSite& site) {
    require_together(impl_->dispatch(), tensors, "all_reduce_coalesced", Repeated::refused);
    const DType dtype = tensors.empty() ? DType::float32 : tensors[0].dtype;
    for (const TensorView& tensor : tensors) {
        if (tensor.dtype == dtype) continue;
        throw UsageError(std::string("all_reduce_coalesced: the first tensor holds ") +
                         to_string(dtype) + ", another " + to_string(tensor.dtype) +
                         "; one call takes one dtype");
    }
    if (!is_defined(op, dtype)) {
        throw UsageError(std::string("all_reduce_coalesced: ") + to_string(op) +
                         " is not defined on " + to_string(dtype));
    }
    const Call call{.kind = Collective::all_reduce,
                    .dtype = dtype,
                    .op = op,
                    .elements = total_bytes(tensors) / size_of(dtype),
                    .source = process_group::current_source,
                    .site = site};
    if (is_on_gpu(tensors))
        return impl_->dispatch().start_on_gpu(one_by_one(tensors, call), stream);
    return impl_->dispatch().start(call, on_all(tensors, call));
}

Work ProcessGroup::broadcast_coalesced(std::span<const TensorView> tensors, Root root,
                                       Stream stream, const CallSite& site) {
    require_together(impl_->dispatch(), tensors, "broadcast_coalesced", Repeated::taken);
    if (root.rank < 0 || root.rank >= size()) {
        throw UsageError("broadcast_coalesced: root " + std::to_string(root.rank) +
                         " is not a rank of a group of " + std::to_string(size()));
    }
    const Call call{.kind = Collective::broadcast,
                    .dtype = DType::uint8,
                    .root = root.rank,
                    .elements = total_bytes(tensors),
                    .source = process_group::current_source,
                    .site = site};
    if (is_on_gpu(tensors))
        return impl_->dispatch().start_on_gpu(one_by_one(tensors, call), stream);
    return impl_->dispatch().start(call, on_all(tensors, call));
}

}  // namespace ddp
