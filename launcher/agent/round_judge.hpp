// What the end of a round means for a job of several hosts: who is to blame, whether there is
// another round, with which exit code the job ends, and what the users are told. Pure, but for a
// report's time.
#pragma once

#include "launcher/agent/restart_policy.hpp"
#include "launcher/hosts/coordinator.hpp"
#include "launcher/options/option_kinds.hpp"
#include "launcher/report/outcome.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace ddp::launcher {

struct RoundVerdict {
    std::optional<std::chrono::milliseconds> restart_in = {};  // nothing: the job ends
    Outcome outcome = {};                                      // its text is the whole report
    std::string line = {};  // for the users of hosts on which nobody is to blame
    std::optional<MemberId> culprit = {};
};

class RoundJudge {
public:
    // `facts`: of the report, without hints; attempts are counted here.
    RoundJudge(const RestartRule& rule, ExitCode exit_code, JobFacts facts)
        : restarts_(rule), exit_code_(exit_code), facts_(std::move(facts)) {}

    // So many restarts were used before, under another coordinator.
    void go_on_after(int restarts) { restarts_.go_on_after(restarts); }
    // Once a round. `report_file`, `hang`, `slow`: as in JobFacts.
    RoundVerdict judge(const RoundEnd& round, std::string report_file,
                       std::optional<HangFacts> hang = {}, std::optional<SlowFacts> slow = {});

private:
    RoundVerdict judge_failure(const RoundEnd& round, const JobEnd& job);
    RoundVerdict judge_loss(const RoundEnd& round, const JobEnd& job);
    void consider_restart(RoundVerdict& verdict, const AttemptFailure& failure);

    RestartPolicy restarts_;
    ExitCode exit_code_;
    JobFacts facts_;
};

}  // namespace ddp::launcher
