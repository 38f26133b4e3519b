#include "backends/call_header.hpp"

#include "backends/device_backend.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace ddp::backends {
namespace {

// What all ranks must agree on: all of an all_gather's counts, but only the presence of an
// all_to_all's, which belong to each rank.
std::uint64_t digest(const Call& call) {
    if (call.kind == Collective::all_to_all) return 1;
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::size_t count : call.parts->send) hash = (hash ^ count) * 0x100000001b3;
    return hash | 1;  // never 0: "even"
}

std::uint64_t elements_of(const Call& call) {
    if (call.kind == Collective::all_to_all) return call.elements;
    return std::accumulate(call.parts->send.begin(), call.parts->send.end(), std::uint64_t{0});
}

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

std::uint32_t encode(const Source& source) {
    if (source.reducer == 0) return static_cast<std::uint32_t>(source.batch_norm);
    const std::uint32_t reducer = 1 + (source.reducer - 1) % most_reducers;
    return (reducer << backward_bits | (source.backward & largest(backward_bits))) << bucket_bits |
           std::min(source.bucket, largest(bucket_bits));
}

bool comes_from_reducer(std::uint32_t source) {
    return source >> (bucket_bits + backward_bits) != 0;
}

std::string describe_source(std::uint32_t source) {
    if (source == 0) return "";
    if (is_batch_norm(source)) {
        const bool forward = source == static_cast<std::uint32_t>(BatchNormPass::forward);
        return std::string(forward ? ", forward" : ", backward") + " of a synchronised batch norm";
    }
    const std::uint32_t bucket = source & largest(bucket_bits);
    const std::uint32_t backward = source >> bucket_bits & largest(backward_bits);
    return (bucket == 0 ? ", for" : ", bucket " + std::to_string(bucket - 1) + " of") +
           " backward " + std::to_string(backward) + " of reducer " +
           std::to_string(source >> (bucket_bits + backward_bits));
}

void set_parts(CallHeader& header, const Call& call) {
    header.elements = elements_of(call);
    header.parts = digest(call);
}

std::string describe(const CallHeader& header) {
    Call call;
    call.kind = static_cast<Collective>(header.kind);
    call.dtype = static_cast<DType>(header.dtype);
    call.op = static_cast<ReduceOp::Kind>(header.op);
    call.root = header.root;
    call.elements = header.elements;
    return describe(call) + (header.parts != 0 ? " in uneven parts" : "") +
           describe_source(header.source) +
           // Of each channel two numbers, and perhaps the count.
           (is_batch_norm(header.source)
                ? " of " + std::to_string(header.elements / 2) + " channels"
                : "");
}

bool is_same_call(const CallHeader& a, const CallHeader& b) {
    return a.sequence == b.sequence && a.elements == b.elements && a.parts == b.parts &&
           a.root == b.root && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op &&
           a.source == b.source;
}

void LaunchOrder::add(const Call& call) {
    constexpr std::uint64_t prime = 0x100000001b3;
    const CallHeader header = header_of(call, ++calls_);
    const std::uint64_t what = std::uint64_t{header.kind} << 16 | std::uint64_t{header.dtype} << 8 |
                               std::uint64_t{header.op};
    const auto root = static_cast<std::uint32_t>(header.root);
    for (const std::uint64_t word :
         {header.elements, header.parts, what, std::uint64_t{root} << 32 | header.source}) {
        digest_ = std::rotl(digest_ ^ word, 23) * prime;
    }
    last_[calls_ % remembered] = digest_;
}

std::optional<std::uint64_t> LaunchOrder::digest_after(std::uint64_t calls) const {
    if (calls > calls_ || calls + remembered <= calls_) return std::nullopt;
    return last_[calls % remembered];
}

int find_different_call(std::span<const CallHeader> headers) {
    for (std::size_t rank = 1; rank < headers.size(); ++rank) {
        if (!is_same_call(headers[rank], headers[0])) return static_cast<int>(rank);
    }
    return -1;
}

std::string describe_difference(const NamedCall& first, const NamedCall& other) {
    const auto called = [](const NamedCall& call) {
        return "rank " + std::to_string(call.rank) + " called " + describe(call.header);
    };
    return "operation " + std::to_string(first.header.sequence) +
           " of the group differs between ranks: " + called(first) + ", " + called(other) +
           (first.header.parts != other.header.parts ? " (other counts)" : "") +
           "; all ranks must call the same operations in the same order";
}

}  // namespace ddp::backends
