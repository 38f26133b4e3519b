// Several hosts: whether they are alike, whether their clocks agree, and how they talk. Each runs
// its own looks; what they have found is gathered by a job of ddp-launch's with a rank on each.
#pragma once

#include "doctor/checks.hpp"

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::doctor {

// What one host has to tell.
struct HostFacts {
    std::string host = {};
    Findings findings = {};
    // Measured by rank 0: its clock of the day beside rank 0's, and the shortest way there and back.
    std::chrono::nanoseconds clock_ahead{0};
    std::chrono::nanoseconds round_trip{0};
};

// An all_reduce of all ranks.
struct SumOfAll {
    bool is_right = true;
    std::uint64_t bytes = 0;
    std::chrono::nanoseconds time{0};
};

// Rank 0's host first. Pure.
Findings judge_hosts(std::span<const HostFacts> hosts, const SumOfAll& sum);

// As one of the ranks of a job, each of which calls it with what it has found at home. Returns what
// is to be said on rank 0, and nothing on the others. Throws UsageError where there is no such job,
// and what collectives do.
Findings check_all_hosts(Findings here);

}  // namespace ddp::doctor
