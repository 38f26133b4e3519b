#include "backends/shm/collectives/one_rank.hpp"

#include "backends/reduction/reduce.hpp"

#include <ddp/error.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace ddp::shm {

using backends::Collective;

void run_on_one_rank(const backends::Call& call) {
    if (call.kind == Collective::barrier) return;
    const bool reduces = call.kind == Collective::all_reduce || call.kind == Collective::reduce ||
                         call.kind == Collective::reduce_scatter;
    const std::size_t elements = call.parts ? call.parts->send[0] : call.elements;
    if (call.parts && !call.parts->receive.empty() && call.parts->receive[0] != elements) {
        throw UsageError("all_to_all: this rank sends " + std::to_string(elements) +
                         " elements to itself, but expects " +
                         std::to_string(call.parts->receive[0]));
    }
    if (!reduces) return backends::copy(call.output, call.input, elements * size_of(call.dtype));
    const auto* const input = static_cast<const std::byte*>(call.input);
    auto* const output = static_cast<std::byte*>(call.output);
    const bool scaled = call.op.kind == ReduceOp::premul_sum;
    const std::span<const double> factors(&call.op.factor, scaled ? 1 : 0);
    backends::reduce({&input, 1}, {&output, 1}, elements, {call.dtype, call.op.kind, factors});
}

}  // namespace ddp::shm
