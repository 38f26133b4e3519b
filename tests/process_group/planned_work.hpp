// Collectives of the serial model (support/collective_model.hpp) through a ProcessGroup.
#pragma once

#include "support/collective_model.hpp"

#include <ddp/process_group.hpp>

#include <random>

namespace ddp::testing {

// The memory of `planned` is `where`.
inline Work start(ProcessGroup& group, const PlannedCollective& planned, const Device& where = {}) {
    const backends::Call call = planned.call();
    TensorView input = planned.input();
    TensorView output = planned.output();
    input.device = output.device = where;
    const Root root{call.root};
    switch (call.kind) {
        case backends::Collective::all_reduce:
            return group.all_reduce(input, output, call.op);
        case backends::Collective::broadcast:
            return group.broadcast(output, root);
        case backends::Collective::all_gather:
            return call.parts ? group.all_gather(input, output, call.parts->send)
                              : group.all_gather(input, output);
        case backends::Collective::reduce_scatter:
            return group.reduce_scatter(input, output, call.op);
        case backends::Collective::reduce:
            return group.reduce(input, output, root, call.op);
        case backends::Collective::gather:
            return group.gather(input, output, root);
        case backends::Collective::scatter:
            return group.scatter(input, output, root);
        case backends::Collective::all_to_all:
            return call.parts
                       ? group.all_to_all(input, output, {call.parts->send, call.parts->receive})
                       : group.all_to_all(input, output);
        case backends::Collective::barrier:
        case backends::Collective::allocate:
            break;
    }
    return group.barrier();
}

inline CollectivePlan random_plan(std::mt19937& random, int ranks, std::size_t max_elements) {
    CollectivePlan plan = random_collective(random, ranks, max_elements);
    if (plan.kind == backends::Collective::broadcast) plan.in_place = true;  // it takes one tensor
    return plan;
}

}  // namespace ddp::testing
