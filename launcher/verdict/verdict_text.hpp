// The words of a verdict: a line that says who holds up whom in which call, and a line for each
// rank that is to blame, with what its process does and what it has called last.
#pragma once

#include "launcher/verdict/hang_judge.hpp"

#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

using RankStates = std::vector<const RankState*>;

// "rank 1 holds up ranks 0 and 2-5", "ranks 1-3 hold up rank 0"
std::string who_holds_up_whom(const std::vector<int>& ranks, const std::vector<int>& waiting);
// "rank 1", "ranks 0, 2-5"
std::string name_ranks(const std::vector<int>& ranks);
// "\n  rank 1 (h2, pid 4711)", of which what is known; a verb follows.
std::string begin_of_line(int rank, const std::string& host, pid_t pid);
// "\n  rank 1 (pid 4711) is stopped (SIGSTOP); its last call, ..., ended 1.0 s ago", of each.
std::string what_they_do(const RankStates& ranks, Verdict::Time now);
// "\n  kill -CONT 4711 lets rank 1 go on", as long as the job runs; mostly nothing.
std::string what_helps(std::span<const RankState> ranks, const std::vector<int>& to_blame);
// "\n  rank 1 (pid 4711) is in broadcast of ..., operation 3 (train.cpp:42)", of each that is.
std::string where_they_are(const RankStates& ranks);
// "in barrier, operation 7 (a.cpp:9)", or "after" it; empty where none is recorded.
std::string last_call_of(const contract::ControlPage& page);
// "41 %", of 0.41
std::string percent(double share);
// "0.9 s"
std::string time_since(Verdict::Time since, Verdict::Time now);

}  // namespace ddp::launcher
