// What one rank tells the others of its call before a byte of it moves, so that ranks that call
// different things are told so, all of them and in the same words, instead of mixing their data.
#pragma once

#include "backends/backend.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace ddp::backends {

// Plain bytes: it travels between hosts of one byte order.
struct CallHeader {
    std::uint64_t sequence;
    std::uint64_t elements;  // of an uneven all_gather: of all ranks together
    std::uint64_t parts;     // 0: even parts; else a digest of what must be the same of them
    double factor;           // of premul_sum; each rank has its own
    std::int32_t root;
    std::uint8_t kind;
    std::uint8_t dtype;
    std::uint8_t op;
    std::uint8_t reserved;
    std::uint32_t source;
    std::uint32_t reserved_too;
};
static_assert(sizeof(CallHeader) == 48);

using contract::BatchNormPass;
using contract::comes_from_reducer;
using contract::describe_source;
using contract::encode;
using contract::Source;

// What uneven parts change of it.
void set_parts(CallHeader& header, const Call& call);

inline CallHeader header_of(const Call& call, std::uint64_t sequence) {
    CallHeader header{};
    header.sequence = sequence;
    header.elements = call.elements;
    header.factor = call.op.factor;
    header.root = call.root;
    header.source = call.source;
    header.kind = static_cast<std::uint8_t>(call.kind);
    header.dtype = static_cast<std::uint8_t>(call.dtype);
    header.op = static_cast<std::uint8_t>(call.op.kind);
    if (call.parts) set_parts(header, call);
    return header;
}
contract::CallSignature signature_of(const Call& call);
// "all_reduce of 128 float32 (sum), bucket 3 of ...": for messages.
std::string describe(const CallHeader& header);

// Whether the two ranks call the same; each may have its own factor.
bool is_same_call(const CallHeader& a, const CallHeader& b);
// The first rank whose call differs from rank 0's; -1 when there is none. One header a rank.
int find_different_call(std::span<const CallHeader> headers);
// What a UsageError says of it: both calls, with the ranks' names (their numbers in the job), and
// what to do.
struct NamedCall {
    int rank;
    const CallHeader& header;
};
std::string describe_difference(const NamedCall& first, const NamedCall& other);

}  // namespace ddp::backends
