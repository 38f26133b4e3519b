// What the front hands to the agent that it forks.
#pragma once

#include "launcher/containment.hpp"
#include "launcher/options.hpp"
#include "launcher/rendezvous.hpp"

#include <string>
#include <vector>

namespace ddp::launcher {

struct AgentJob {
    Options options;
    int workers = 1;
    std::string run_id;
    std::string program;               // the path of what a worker executes
    std::vector<std::string> command;  // its argv
    Rendezvous rendezvous;
    std::string error_folder;
    ForkedAgent agent{};
};

}  // namespace ddp::launcher
