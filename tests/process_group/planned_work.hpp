// Collectives of the serial model (support/collective_model.hpp) through a ProcessGroup.
#pragma once

#include "support/collective_model.hpp"

#include <ddp/process_group.hpp>

#include <random>

namespace ddp::testing {

inline Work start(ProcessGroup& group, const backends::Call& call, const TensorView& input,
                  const TensorView& output, Stream stream = {}) {
    const Root root{call.root};
    switch (call.kind) {
        case backends::Collective::all_reduce:
            return group.all_reduce(input, output, call.op, stream);
        case backends::Collective::broadcast:
            return group.broadcast(output, root, stream);
        case backends::Collective::all_gather:
            return call.parts ? group.all_gather(input, output, call.parts->send, stream)
                              : group.all_gather(input, output, stream);
        case backends::Collective::reduce_scatter:
            return group.reduce_scatter(input, output, call.op, stream);
        case backends::Collective::reduce:
            return group.reduce(input, output, root, call.op, stream);
        case backends::Collective::gather:
            return group.gather(input, output, root, stream);
        case backends::Collective::scatter:
            return group.scatter(input, output, root, stream);
        case backends::Collective::all_to_all:
            return call.parts ? group.all_to_all(input, output,
                                                 {call.parts->send, call.parts->receive}, stream)
                              : group.all_to_all(input, output, stream);
        case backends::Collective::barrier:
        case backends::Collective::allocate:
        case backends::Collective::adopt:
            break;
    }
    return group.barrier();
}
inline Work start(ProcessGroup& group, const PlannedCollective& planned) {
    return start(group, planned.call(), planned.input(), planned.output());
}

inline CollectivePlan random_plan(std::mt19937& random, int ranks, std::size_t max_elements) {
    CollectivePlan plan = random_collective(random, ranks, max_elements);
    if (plan.kind == backends::Collective::broadcast) plan.in_place = true;  // it takes one tensor
    return plan;
}

// What NCCL can do, and the stand-in does as the model says; buffers are aligned for any type.
inline bool is_of_nccl(const CollectivePlan& plan) {
    // ncclAvg multiplies by 1/3 first, which the model does not.
    const bool thirds =
        plan.op == ReduceOp::avg && is_floating_point(plan.dtype) && plan.ranks == 3;
    const bool bits =
        plan.op == ReduceOp::bit_and || plan.op == ReduceOp::bit_or || plan.op == ReduceOp::bit_xor;
    // The stand-in multiplies all inputs by the reader's factor; NCCL each by its owner's.
    const bool own_factors = plan.op == ReduceOp::premul_sum && plan.ranks > 1;
    return plan.kind != backends::Collective::barrier && !thirds && !bits && !own_factors &&
           plan.dtype != DType::int16;
}

inline CollectivePlan random_plan_of_nccl(std::mt19937& random, int ranks,
                                          std::size_t max_elements) {
    CollectivePlan plan = random_plan(random, ranks, max_elements);
    while (!is_of_nccl(plan)) plan = random_plan(random, ranks, max_elements);
    for (auto* const places : {&plan.inputs, &plan.outputs}) {
        for (CollectivePlan::Place& place : *places) place.misalignment &= ~std::size_t{7};
    }
    return plan;
}

}  // namespace ddp::testing
