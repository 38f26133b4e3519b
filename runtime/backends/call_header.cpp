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

}  // namespace

void set_parts(CallHeader& header, const Call& call) {
    header.elements = elements_of(call);
    header.parts = digest(call);
}

contract::CallSignature signature_of(const Call& call) {
    return {.kind = call.kind,
            .dtype = call.dtype,
            .op = call.op.kind,
            .root = call.root,
            .elements = call.parts ? elements_of(call) : call.elements,
            .uneven = call.parts != nullptr,
            .source = call.source};
}

std::string describe(const CallHeader& header) {
    return describe(contract::CallSignature{.kind = static_cast<Collective>(header.kind),
                                            .dtype = static_cast<DType>(header.dtype),
                                            .op = static_cast<ReduceOp::Kind>(header.op),
                                            .root = header.root,
                                            .elements = header.elements,
                                            .uneven = header.parts != 0,
                                            .source = header.source});
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
