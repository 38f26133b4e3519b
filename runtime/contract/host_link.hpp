// What ddp::launch() hands to the ddp-launch that it starts, as
// DDP_LAUNCH_HOST=<leash>:<results>:<judge>. Two descriptors: the leash is a pidfd of the host: it
// becomes readable when the host has ended, whoever else holds a copy. Results is a socket on which
// ddp-launch sends one frame before it ends: the host may be unable to learn its exit code (a
// SIGCHLD handler that reaps everything). And who judges how workers end, as its number.
//
// Frame: u8 kind, i64 exit code, str report, u32 number of ends and of each u32 rank, u32 code,
// u32 signal, u32 stopped with, u8 core dumped (base/frame).
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
inline constexpr std::size_t max_report_bytes = 64 * 1024;  // of a report; the rest is cut
// A report, and the ends of 4096 workers.
inline constexpr std::size_t max_launch_end_bytes = 4 * max_report_bytes;

// launcher: the first failure ends the job, and ddp-launch says so. host: a failure stops nobody
// and ddp-launch says nothing; it tells the host how each worker ended.
enum class Judge : std::uint8_t { launcher, host };

struct RankEnd {
    int rank = 0;
    ExitStatus status = {};
    int stopped_with = 0;  // the last signal that it was sent before its end, or 0
};

struct LaunchEnd {
    enum class Kind : std::uint8_t { ended, wrong_command_line };
    Kind kind = Kind::ended;
    int exit_code = 0;
    std::string report = {};
    std::vector<RankEnd> ends = {};  // in order; only when the host judges
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

    int leash() const { return leash_.get(); }  // -1: no host
    Judge judge() const { return judge_; }
    void send(const LaunchEnd& end) const;  // never waits; errors are dropped
    void close();

private:
    base::UniqueFd leash_;
    base::UniqueFd results_;
    Judge judge_ = Judge::launcher;
};

}  // namespace ddp::contract
