// What the front settles about a job of several hosts before the agent starts.
#pragma once

#include "launcher/hosts/job_proof.hpp"
#include "launcher/hosts/membership/membership.hpp"
#include "launcher/hosts/start/host_env.hpp"
#include "launcher/options/options.hpp"

#include <optional>
#include <string>

namespace ddp::launcher {

struct HostsJob {
    HostEnv env;
    MembershipRules rules;
    std::string name;  // --rdzv-id as given; may be empty
    // This agent does. Of several on the endpoint's host that have no node rank: the first.
    bool coordinates = false;
    // Where it serves, at once or if it takes over; nothing: nowhere.
    std::optional<MeetingPlace> own_place = {};
    bool serves_only = false;  // coordinates, and has no workers
    bool by_starter = false;   // one command started all hosts: --hosts
    // Where there is none anybody may join who can connect.
    JobProof proof = {};
    bool at_loopback = false;  // nobody beyond this host can connect

    // Who asks one host to stop means the whole job. Else an elastic job goes on without the host.
    bool ends_as_one() const { return by_starter || rules.is_static(); }
};

// The rules by the options and torchrun's defaults.
MembershipRules membership_rules(const HostEnv& env, const HostOptions& options);

// Nothing: a job of this host alone. Where the workers meet is settled in the options with it. To
// be called before a run id is made up. Looks the head's name up where nothing else tells whether
// this is its host. `token`: from whoever has started this agent; without one, that of the file
// that DDP_JOB_TOKEN_FILE names; else under Slurm, where munged answers, one that the coordinator
// makes. `by_starter`: HostsJob's. Throws UsageError, also for a token without TLS and for
// --auth=required without a token.
std::optional<HostsJob> settle_hosts(Options& options, const EnvLookup& environment,
                                     std::optional<JobToken> token = {}, bool by_starter = false);

}  // namespace ddp::launcher
