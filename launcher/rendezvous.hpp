// MASTER_ADDR:MASTER_PORT, settled before anything is forked, so that a port in use is one clear
// line. A free port is bound once and held for the whole job, never closed and opened again: nobody
// can take it in between.
//
// With the agent's store the port is its listening socket, on 127.0.0.1. Without
// (--agent-store=off) a free port is held by a socket that is bound, with SO_REUSEADDR, but does
// not listen: Linux lets another socket with SO_REUSEADDR bind and listen there, and hands the port
// to no one else. A program that binds without SO_REUSEADDR finds it in use; for that one give
// --master-port, which is only checked and then left free.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/options.hpp"

#include <cstdint>
#include <string>

namespace ddp::launcher {

struct Rendezvous {
    std::string address;
    std::uint16_t port = 0;
    base::UniqueFd listener;  // for the agent's store
    base::UniqueFd holder;    // keeps a free port for rank 0
    bool rank_0_serves_here = false;
    bool at_loopback = false;
};

// Throws UsageError for a port in use, SystemError.
Rendezvous make_rendezvous(const Options& options);

}  // namespace ddp::launcher
