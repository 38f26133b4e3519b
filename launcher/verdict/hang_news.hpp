// HangNews: verdict after verdict, what there is to say: who holds up the job, once, again when it
// is somebody or something else, and when it goes on. Pure.
#pragma once

#include "launcher/options/option_kinds.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/verdict/hang_judge.hpp"
#include "launcher/verdict/rank_state.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

class HangNews {
public:
    using Time = Verdict::Time;

    // `stands`: how long a verdict has to stand until it ends the job.
    HangNews(OnHang on_hang, std::chrono::milliseconds stands)
        : on_hang_(on_hang), stands_(stands) {}

    bool is_wanted() const { return on_hang_ != OnHang::ignore; }
    // What is new, for the user; mostly nothing. Where ranks that a verdict speaks of are not known
    // now, or nothing has moved but the clock, it stands, and ends nothing.
    // `is_held_for_debugger`: some hold themselves for one, have been spoken of, and are waited
    // for. `by_stacks`: as StackJudge's, where records say nothing.
    std::vector<std::string> consider(Time now, std::span<const RankState> ranks,
                                      const Patience& usual, bool is_held_for_debugger,
                                      const std::optional<Verdict>& by_stacks = std::nullopt);

    // Nobody has looked for a while: what stands has to stand anew until it ends the job.
    void postpone(Time now) {
        said_at_ = now;
        ends_job_ = false;
    }

    // What stands; nothing: nobody holds up the job.
    const std::optional<Verdict>& verdict() const { return verdict_; }
    // For the report of an attempt that has ended: what held at the last look, or what the records
    // of its end say where a worker has failed.
    std::optional<HangFacts> facts(std::span<const RankState> ranks, bool any_failed) const;
    // Not while somebody debugs the rank.
    bool ends_job() const { return ends_job_; }
    // Whom others wait for, where ends_job(); nothing: ranks that wait themselves.
    std::optional<int> to_blame() const;
    // "stopping the job (--on-hang=stop): SIGTERM now, SIGKILL after 30 s"
    static std::string words_of_stop(std::chrono::milliseconds grace);

    // A rank of which was said that it is held has not been seen to run again, nor to have ended.
    bool awaits_held() const {
        return std::ranges::any_of(held_, [](const auto& one) { return one.second.was_said; });
    }

private:
    struct Held {
        Time since;
        bool was_said = false;
    };

    std::vector<std::string> note_held(Time now, std::span<const RankState> ranks);
    void note_said(Time now, bool is_new);

    OnHang on_hang_;
    std::chrono::milliseconds stands_;
    std::map<int, Held> held_;  // ranks that are
    std::optional<Verdict> verdict_;
    bool is_by_stacks_ = false;  // it is
    Time said_at_{};
    bool ends_job_ = false;
};

}  // namespace ddp::launcher
