// What ddp::launch() hands to the ddp-launch that it starts, as
// DDP_LAUNCH_HOST=<liveness fd>:<results fd>:<failure policy>. The host is the program that calls
// ddp::launch(). The liveness descriptor is a pidfd of the host: it becomes readable when the host
// has ended, whichever other process has a copy of it. On the results descriptor, a socket,
// ddp-launch sends one frame before it ends: the host may be unable to learn the exit code (a
// SIGCHLD handler of the host's may reap everything). The failure policy is the number of its
// enumerator.
//
// Frame: u8 kind, i64 exit code, str report, u32 number of ends and of each u32 rank, u32 code,
// u32 signal, u32 stopped with, u8 core dumped, u32 number of hosts and of each str name, u32 code
// (base/frame).
#pragma once

#include "base/unique_fd.hpp"
#include "contract/exit_status.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::contract {

inline constexpr const char* host_link_variable = "DDP_LAUNCH_HOST";
inline constexpr std::size_t max_report_bytes =
    std::size_t{64} * 1024;                                       // of a report; the rest is cut
inline constexpr std::size_t max_hosts_bytes = max_report_bytes;  // the rest is left out
// A report, and the ends of 4096 workers and of hosts.
inline constexpr std::size_t max_launch_end_bytes = 4 * max_report_bytes;

// What a worker's failure leads to. stop_job: the first failure ends the job, and ddp-launch prints
// a report. tell_host: a failure stops no other worker and ddp-launch prints nothing; the host gets
// the end of each worker.
enum class FailurePolicy : std::uint8_t { stop_job, tell_host };

struct RankEnd {
    int rank = 0;
    ExitStatus status = {};
    int stopped_with = 0;  // the last signal that it was sent before its end, or 0
};

struct HostEnd {
    std::string host;
    int exit_code = 0;
};

struct LaunchEnd {
    enum class Kind : std::uint8_t { ended, wrong_command_line };
    Kind kind = Kind::ended;
    int exit_code = 0;
    std::string report = {};
    std::vector<RankEnd> ends = {};   // in order; with FailurePolicy::tell_host
    std::vector<HostEnd> hosts = {};  // of a job of other hosts: by node rank, as many as fit
};

// A frame's payload. parse_launch_end throws UsageError for one that is none.
std::string to_payload(const LaunchEnd& end);
LaunchEnd parse_launch_end(std::string_view payload);

// ddp-launch's side.
class HostLink {
public:
    HostLink() = default;  // no host
    // From the environment, where nobody below finds it again. Descriptors that are none count as
    // no host. Call it single-threaded.
    static HostLink take();

    // Of a job that was started from another host: a descriptor that becomes readable when the
    // starter has gone, and a line that it waits for on stdout and on stderr, after which all is
    // the job's. It is told nothing else, but for its status line, if it shows one.
    static HostLink of_starter(base::UniqueFd liveness, std::string greeting, bool shows_status);
    bool is_starter() const { return !greeting_.empty(); }
    bool shows_status() const { return shows_status_; }
    const std::string& greeting() const { return greeting_; }
    // Nothing can be refused any more, and workers will start.
    void greet() const;

    int parent_liveness_fd() const { return parent_liveness_.get(); }  // -1: no host
    FailurePolicy failure_policy() const { return failure_policy_; }
    void send(const LaunchEnd& end) const;  // never waits; errors are dropped
    void close();

private:
    base::UniqueFd parent_liveness_;
    base::UniqueFd results_;
    FailurePolicy failure_policy_ = FailurePolicy::stop_job;
    std::string greeting_;
    bool shows_status_ = false;
};

}  // namespace ddp::contract
