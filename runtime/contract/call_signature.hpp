// What a rank calls: the part of a collective that all ranks must agree on, as backends compare it,
// as a rank's page records it, and as messages on either side name it.
#pragma once

#include <ddp/dtype.hpp>
#include <ddp/reduce_op.hpp>

#include <cstdint>
#include <string>

namespace ddp::contract {

enum class Collective : std::uint8_t {
    all_reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    barrier,
    reduce,
    gather,
    scatter,
    all_to_all,
    // ProcessGroup's functions of that name: Backend::provide_memory, not run.
    allocate,
    adopt,
};
inline constexpr Collective last_collective = Collective::adopt;
const char* to_string(Collective) noexcept;

// Who calls, where it is not the program. Ranks must agree on that as on the call itself: two
// buckets of one size, or the same one of two steps, would be added up without a word.
enum class BatchNormPass : std::uint8_t { none, forward, backward };
struct Source {
    std::uint32_t reducer = 0;   // its number in the group, from 1; counted up to 255
    std::uint32_t backward = 0;  // how many of its backwards have sent; 1024 are told apart
    std::uint32_t bucket = 0;    // from 1; 0: none, as the exchange of what is used
    BatchNormPass batch_norm = BatchNormPass::none;  // of a synchronised one; without a reducer
};
std::uint32_t encode(const Source& source);
bool comes_from_reducer(std::uint32_t source);
// The same for all backwards of a reducer.
std::uint32_t without_backward(std::uint32_t source);
// Whether a description is of one call, or of all that a program makes alike: at the same line, in
// each backward.
enum class Naming : std::uint8_t { one_call, all_alike };
// ", bucket 3 of backward 17 of reducer 1": for messages. Empty for the program's own.
std::string describe_source(std::uint32_t source, Naming naming = Naming::one_call);

struct CallSignature {
    Collective kind = Collective::barrier;
    DType dtype = DType::uint8;
    ReduceOp::Kind op = ReduceOp::sum;
    std::int32_t root = 0;
    std::uint64_t elements = 0;  // backends::CallHeader's
    bool uneven = false;         // parts of different sizes
    std::uint32_t source = 0;    // an encoded Source; 0: the program

    bool operator==(const CallSignature&) const = default;
};
// "all_reduce of 128 float32 (sum), bucket 3 of ...": for messages.
std::string describe(const CallSignature& call, Naming naming = Naming::one_call);

}  // namespace ddp::contract
