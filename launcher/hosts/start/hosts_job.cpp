#include "launcher/hosts/start/hosts_job.hpp"

#include "base/net/address.hpp"
#include "base/printable.hpp"
#include "launcher/hosts/munge.hpp"
#include "launcher/options/endpoint.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

// torchrun's defaults.
constexpr milliseconds join_timeout{600'000};
constexpr milliseconds static_timeout{900'000};

// An agent says both before the coordinator knows who it is, and hears little of a stranger.
void require_short(const char* option, const std::string& text) {
    constexpr std::size_t most = 1000;
    if (text.size() <= most) return;
    throw UsageError(std::string(option) + ": " + std::to_string(text.size()) +
                     " bytes; of a job of several hosts it has at most " + std::to_string(most));
}

bool is_alias_of_this_host(const std::string& name) {
    const auto found = base::resolve(name, 0).addresses;
    return std::ranges::any_of(
        found, [](const base::SocketAddress& one) { return is_this_host(one.host()); });
}

// Nodes of one cluster have one user and one key of munged: which job of Slurm's a credential is
// for, the same on all its hosts. Empty: there is no MUNGE.
std::string job_of_munge(const HostsJob& job, const EnvLookup& environment) {
    const auto number = environment("SLURM_JOB_ID");
    if (!number || !has_tls() || !has_munge()) return {};
    return "Slurm job " + base::printable(*number) + "." +
           base::printable(environment("SLURM_STEP_ID").value_or("")) + " at port " +
           std::to_string(job.env.port);
}

JobProof proof_of(const HostsJob& job, Authentication wanted, std::optional<JobToken> token,
                  const EnvLookup& environment) {
    if (!token) token = job_token(environment);
    if (token) return {.tls = TlsContext(*token)};
    if (std::string name = job_of_munge(job, environment); !name.empty()) {
        if (!job.coordinates) return {.credential_for = std::move(name)};
        token = JobToken::make();
        std::string credential = encode_credential(*token, name);
        return {.tls = TlsContext(*token),
                .credential = std::move(credential),
                .credential_for = std::move(name)};
    }
    if (wanted == Authentication::automatic) return {};
    throw UsageError(
        "--auth=required: there is no job token; name a file of mode 0600 with 64 hex digits in "
        "DDP_JOB_TOKEN_FILE, the same on all hosts (under Slurm a munged on each host does as "
        "well)");
}

}  // namespace

MembershipRules membership_rules(const HostEnv& env, const HostOptions& options) {
    MembershipRules rules;
    rules.min_hosts = env.min_hosts;
    rules.max_hosts = env.max_hosts;
    rules.node_timeout = options.node_timeout;
    rules.join_timeout =
        options.join_timeout.value_or(rules.is_static() ? static_timeout : join_timeout);
    if (options.last_call) rules.last_call = *options.last_call;
    rules.has_successors = !env.successors.empty();
    // What is said is said before the loss.
    rules.say_silent_after = std::min(rules.say_silent_after, rules.node_timeout / 2);
    rules.say_stalled_after = std::min(rules.say_stalled_after, rules.stall_timeout / 2);
    return rules;
}

std::optional<HostsJob> settle_hosts(Options& options, const EnvLookup& environment,
                                     std::optional<JobToken> token, bool by_starter) {
    std::optional<HostEnv> env = host_env(options.hosts.flags, environment);
    if (!env) {
        if (options.hosts.serve_only) {
            throw UsageError(
                "--serve-only: say for how many hosts (--nnodes=2:3) and where they meet "
                "(--rdzv-endpoint=HOST:PORT, of this host)");
        }
        resolve_endpoint(options);
        return std::nullopt;
    }
    if (options.rendezvous.agent_store == AgentStore::off) {
        throw UsageError(
            "--agent-store=off: the hosts of a job meet at the launcher's store; leave it out");
    }
    require_short("--rdzv-id", options.run_id);
    require_short("--role", options.role);
    options.rendezvous.master_addr = env->head;
    options.rendezvous.master_port = env->port;
    HostsJob job{.env = *std::move(env), .rules = {}, .name = options.run_id};
    job.rules = membership_rules(job.env, options.hosts);
    job.by_starter = by_starter;
    if (options.hosts.serve_only) {
        job.coordinates = job.serves_only = true;
        job.env.line += "; this host serves the others, without workers";
    } else if (job.ends_as_one() && job.env.node_rank) {
        job.coordinates = *job.env.node_rank == 0;
    } else {
        job.coordinates = is_this_host(job.env.head) || is_alias_of_this_host(job.env.head);
    }
    job.proof = proof_of(job, options.hosts.authentication, std::move(token), environment);
    if (job.coordinates) {
        job.own_place = {job.env.head, job.env.port};
    } else {
        const auto own = std::ranges::find_if(job.env.successors, [](const MeetingPlace& place) {
            return is_this_host(place.host) || is_alias_of_this_host(place.host);
        });
        if (own != job.env.successors.end()) job.own_place = *own;
    }
    return job;
}

}  // namespace ddp::launcher
