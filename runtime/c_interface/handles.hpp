// What the handles of ddp.h are.
#pragma once

#include "c_interface/guard.hpp"

#include <ddp/checkpoint.hpp>
#include <ddp/distributed_sampler.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>
#include <ddp/work.hpp>

#include <memory>
#include <vector>

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
    std::vector<ddp::Parameter> parameters;
    ddp::Reducer reducer;
    std::unique_ptr<ddp::Reducer::NoSync> no_sync = {};
};

struct ddp_sampler {
    ddp::DistributedSampler sampler;
};

struct ddp_checkpoints {
    ddp::CheckpointManager manager;
};
