// MASTER_ADDR:MASTER_PORT, settled before anything is forked, so that a port in use is one clear
// line. A free port is bound once and held for the whole job, never closed and opened again: the
// kernel gives it to nobody who asks for a free one on 127.0.0.1 or on all addresses.
//
// With the agent's store the port is its listening socket, on 127.0.0.1. Without
// (--agent-store=off) a free port is held by a socket on 127.0.0.1 that is bound, with
// SO_REUSEADDR, but does not listen. ddp's rank 0 gets that socket and listens on it. Other
// programs bind anew: where both have SO_REUSEADDR, Linux lets another socket bind and listen
// there, on 127.0.0.1, 0.0.0.0 or ::, whoever's it is. port_watch.hpp looks whose. A program that
// binds without SO_REUSEADDR finds the port in use; for that one give --master-port, which is only
// checked and then left free.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/hosts/start/hosts_job.hpp"
#include "launcher/options/options.hpp"
#include "store/server/store_server.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::launcher {

// Of a job of several hosts the address is the head's, as given, on all of them; the agent that
// coordinates listens at all of its addresses that this host has, the others nowhere.
struct Rendezvous {
    std::string address;
    std::uint16_t port = 0;
    std::vector<base::UniqueFd> listeners;  // for the agent's store
    base::UniqueFd holder;                  // keeps a free port for rank 0
    bool rank_0_serves_here = false;
    bool at_loopback = false;
};

// Throws UsageError for a port in use, SystemError.
Rendezvous make_rendezvous(const Options& options);
// Where the port is in use and others may coordinate on this host, it says in `hosts` that they do;
// and whether it is loopback alone.
Rendezvous make_rendezvous(HostsJob& hosts);

// Of the agent's store, for so many workers of this host; of several hosts, it knows more.
store::StoreServerOptions store_options(const Options& options, int workers);

// Where a successor listens, an address in digits. Returns why it cannot; empty: it does.
std::string listen_at(const MeetingPlace& place, Rendezvous& rendezvous);

}  // namespace ddp::launcher
