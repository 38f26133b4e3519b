// Which job of several hosts this agent is part of, by its options and the variables of whoever
// started it: PET_*, a step of Slurm, an Indexed Job of Kubernetes, Open MPI, an MPI launcher with
// PMI. Pure: reads no file, asks no name server.
// Invariant: the hosts of one job, each with its own variables, get the same numbers, head and
// port.
#pragma once

#include "launcher/options/options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// Where hosts meet: a name or an address, and a port.
struct MeetingPlace {
    std::string host;
    std::uint16_t port = 0;
    friend bool operator==(const MeetingPlace&, const MeetingPlace&) = default;
};

struct HostEnv {
    int min_hosts = 1;
    int max_hosts = 1;
    // This host's place. Nothing where nobody says it, or where it is a scheduler's and the number
    // of hosts may change.
    std::optional<int> node_rank;
    // Where the hosts meet, a name or an address; maybe this host by any of its names.
    std::string head;
    std::uint16_t port = 0;
    // Where other hosts of the job serve it if the head's is lost: what --rdzv-endpoint lists
    // behind the first; of a scheduler's hosts the next ones, where may_name_successors().
    std::vector<MeetingPlace> successors;
    // Names by node rank, where they are known and are as many as max_hosts; else empty.
    std::vector<std::string> hosts;
    // For the user: "3 hosts of Slurm step 12.0 (SLURM_STEP_NUM_NODES), this is host 1
    // (SLURM_NODEID); head h1 (SLURM_STEP_NODELIST), port 20012 (job id)".
    std::string line;
};

// Nothing: this host alone, and nothing to say. Each value comes from the first that has it:
//
//   options   then PET_*; --standalone and --nnodes=1 mean this host alone, whatever else is there
//   Slurm     a step (SLURM_STEP_ID) of several hosts with one task each; not the batch shell, and
//             not the step in which mpirun runs its daemons. Head: the first of
//             SLURM_STEP_NODELIST. Port: the first of SLURM_STEP_RESV_PORTS, else 20000 + the
//             job's id modulo 20000
//   Kubernetes  JOB_COMPLETION_INDEX gives the place; the number of hosts and the head's name are
//             in no variable, so that the manifest sets PET_NNODES and PET_MASTER_ADDR
//   MPI       one process a host by Open MPI's or hydra's names; nobody tells the head
//   MASTER_ADDR, MASTER_PORT   where several hosts are needed or there and nobody has told the
//             head. WORLD_SIZE and RANK are never read: some launchers count pods there, others
//             processes
//
// A port that nobody gives is torchrun's: 29400 of a c10d endpoint, else 29500. A job that one host
// will do for (--nnodes=1:4) and whose head nobody says, or whose port is 0, is this host alone.
//
// Throws UsageError that says what to write: several tasks on a host, each of which would be an
// agent; a step whose hosts --nnodes does not allow; a place that the job does not have; no head; a
// pod with an index above 0 and no PET_NNODES; a malformed value.
//
// Where it finds no job, a step of several processes is refused (options/job_step.hpp).
std::optional<HostEnv> host_env(const HostFlags& flags, const EnvLookup& environment);

// Whether hosts that all of a job know may take over without being asked to: where MIN hosts are
// more than half of MAX. Else a job that MIN hosts could carry on would need more of them, and a
// coordinator that starts would have to wait for the others to notice that one was away.
inline bool may_name_successors(int min_hosts, int max_hosts) {
    return min_hosts < max_hosts && 2 * min_hosts > max_hosts;
}
// Of those hosts, in their order, the ones behind the head that do: each is looked for in turn.
inline constexpr std::size_t most_named_successors = 3;

// Of a job of Slurm's that has no ports of its own: two on one host have different ones, mostly.
inline std::uint16_t port_of_slurm_job(std::int64_t job) {
    constexpr std::int64_t base = 20'000, ports = 20'000;
    return static_cast<std::uint16_t>(base + job % ports);
}

// Where host_env() has found nothing: what to tell a user whose job might have had more hosts;
// empty where it is one of this host alone.
std::string alone_notice(const HostFlags& flags, const EnvLookup& environment);

}  // namespace ddp::launcher
