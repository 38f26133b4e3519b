// What the handles of ddp.h are.
#pragma once

#include "c_interface/guard.hpp"

#include <ddp/checkpoint.hpp>
#include <ddp/distributed_sampler.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>
#include <ddp/work.hpp>

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ddp::c_interface {

// The gradients of a reducer that lives, in this process. A program in C has no Parameter, in which
// C++ sees that another reducer has it.
class GradientClaim {
public:
    // Marks those that another claim has, so that Reducer refuses them, on every rank.
    explicit GradientClaim(std::span<Parameter> parameters);
    ~GradientClaim();
    GradientClaim(const GradientClaim&) = delete;
    GradientClaim& operator=(const GradientClaim&) = delete;

private:
    std::vector<const void*> own_;
};

}  // namespace ddp::c_interface

struct ddp_group {
    ddp::ProcessGroup group;
};

struct ddp_work {
    ddp::Work work;
};

struct ddp_adopted {
    std::shared_ptr<void> memory;
};

struct ddp_reducer {
    ddp_reducer(std::vector<ddp::Parameter> list, ddp::ProcessGroup& group,
                const ddp::ReducerOptions& options)
        : parameters(std::move(list)), claim(parameters), reducer(parameters, group, options) {}

    std::vector<ddp::Parameter> parameters;
    ddp::c_interface::GradientClaim claim;
    ddp::Reducer reducer;
    std::unique_ptr<ddp::Reducer::NoSync> no_sync;
};

struct ddp_sampler {
    ddp::DistributedSampler sampler;
};

struct ddp_checkpoints {
    ddp::CheckpointManager manager;
};
