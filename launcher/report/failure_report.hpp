// The words for a job's end: the root cause first, then what helps to find its reason, then what
// became of the others. Pure. Lists and hints are wrapped for 80 columns where that is asked for;
// what workers said is left as they said it.
#pragma once

#include "launcher/report/failure.hpp"
#include "launcher/stacks/rank_stacks.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

enum class Lines : std::uint8_t { wrapped, whole };  // for a terminal, or for a pipe and a file

// Who held up the job (verdict/hang_judge.hpp), as was said when it still ran.
struct HangFacts {
    std::string kind = {};
    std::vector<int> ranks = {};  // to blame
    std::string text = {};
    bool has_ended_job = false;           // --on-hang=stop
    std::vector<RankStacks> stacks = {};  // where some of them were, as far as has been read
};

// Ranks that others had to wait for again and again (verdict/slow_news.hpp).
struct SlowFacts {
    std::vector<int> ranks = {};  // sorted
    std::string text = {};
};

struct JobFacts {
    std::string host = {};
    int attempt = 1;  // of `attempts`
    int attempts = 1;
    std::vector<std::string> hints = {};  // for the root cause
    std::string report_file = {};         // the copy for machines; empty: none
    bool wants_json = false;              // also without that file
    std::optional<HangFacts> hang = {};
    std::optional<SlowFacts> slow = {};
    Lines lines = Lines::wrapped;
};

// Lines without the launcher's name before them; no newline at the end.
std::string failure_text(std::span<const WorkerEnd> ended, const RootCause& root_cause,
                         const JobFacts& facts);

// When the user stopped the job: the signal, and how each worker took it.
std::string stop_text(int signal, std::span<const WorkerEnd> ended, const JobFacts& facts);

// "rank 1 (local rank 1, pid 4711) failed: exit code 7"
std::string headline(const WorkerEnd& root, const RootCause& root_cause);

// "45 ms", "0.2 s", "12 s", "1 min 5 s", "2 h 3 min"
std::string describe_time(std::chrono::milliseconds time);
// "0, 2-5", for sorted numbers.
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace ddp::launcher
