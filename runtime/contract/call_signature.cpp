#include "contract/call_signature.hpp"

#include <algorithm>

namespace ddp::contract {
namespace {

// From the lowest: so many bits each.
constexpr std::uint32_t bucket_bits = 14;
constexpr std::uint32_t backward_bits = 10;
constexpr std::uint32_t most_reducers = 255;

constexpr std::uint32_t largest(std::uint32_t bits) { return (1U << bits) - 1; }

// Then the rest of it is none.
bool is_batch_norm(std::uint32_t source) {
    return source != 0 && source >> (bucket_bits + backward_bits) == 0;
}

}  // namespace

const char* to_string(Collective kind) noexcept {
    switch (kind) {
        case Collective::all_reduce:
            return "all_reduce";
        case Collective::broadcast:
            return "broadcast";
        case Collective::all_gather:
            return "all_gather";
        case Collective::reduce_scatter:
            return "reduce_scatter";
        case Collective::barrier:
            return "barrier";
        case Collective::reduce:
            return "reduce";
        case Collective::gather:
            return "gather";
        case Collective::scatter:
            return "scatter";
        case Collective::all_to_all:
            return "all_to_all";
        case Collective::allocate:
            return "allocate";
        case Collective::adopt:
            return "adopt";
    }
    return "unknown";
}

std::uint32_t encode(const Source& source) {
    if (source.reducer == 0) return static_cast<std::uint32_t>(source.batch_norm);
    const std::uint32_t reducer = 1 + (source.reducer - 1) % most_reducers;
    return (reducer << backward_bits | (source.backward & largest(backward_bits))) << bucket_bits |
           std::min(source.bucket, largest(bucket_bits));
}

bool comes_from_reducer(std::uint32_t source) {
    return source >> (bucket_bits + backward_bits) != 0;
}

std::uint32_t without_backward(std::uint32_t source) {
    return comes_from_reducer(source) ? source & ~(largest(backward_bits) << bucket_bits) : source;
}

std::string describe_source(std::uint32_t source, Naming naming) {
    if (source == 0) return "";
    if (is_batch_norm(source)) {
        const bool forward = source == static_cast<std::uint32_t>(BatchNormPass::forward);
        return std::string(forward ? ", forward" : ", backward") + " of a synchronised batch norm";
    }
    const std::uint32_t bucket = source & largest(bucket_bits);
    const std::uint32_t backward = source >> bucket_bits & largest(backward_bits);
    std::string text = bucket == 0 ? ", for" : ", bucket " + std::to_string(bucket - 1) + " of";
    if (naming == Naming::one_call) text += " backward " + std::to_string(backward) + " of";
    return text + " reducer " + std::to_string(source >> (bucket_bits + backward_bits));
}

std::string describe(const CallSignature& call, Naming naming) {
    std::string text = to_string(call.kind);
    if (call.kind == Collective::barrier) return text + describe_source(call.source, naming);
    text += " of " + std::to_string(call.elements) + " " + ddp::to_string(call.dtype);
    const bool reduces = call.kind == Collective::all_reduce || call.kind == Collective::reduce ||
                         call.kind == Collective::reduce_scatter;
    if (reduces) text += std::string(" (") + ddp::to_string(ReduceOp(call.op)) + ")";
    const bool from = call.kind == Collective::broadcast || call.kind == Collective::scatter;
    const bool to = call.kind == Collective::reduce || call.kind == Collective::gather;
    if (from || to) text += (from ? " from rank " : " to rank ") + std::to_string(call.root);
    if (call.uneven) text += " in uneven parts";
    text += describe_source(call.source, naming);
    // Of each channel two numbers, and perhaps the count.
    if (is_batch_norm(call.source))
        text += " of " + std::to_string(call.elements / 2) + " channels";
    return text;
}

}  // namespace ddp::contract
