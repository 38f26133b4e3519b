// HangWatch: looks at the pages and processes of an attempt's workers a few times a second, and
// says who holds up the job: once, again when it is somebody or something else, and when it goes
// on. Invariant: nothing in a page does more harm than a wrong sentence.
#pragma once

#include "contract/control_page.hpp"
#include "launcher/options/option_kinds.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/verdict/hang_judge.hpp"
#include "launcher/verdict/usual_times.hpp"
#include "launcher/worker/worker.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

class HangWatch {
public:
    using Time = Verdict::Time;
    // Between two looks: once a rank has joined, and before.
    static constexpr std::chrono::milliseconds interval{250};
    static constexpr std::chrono::milliseconds interval_at_start{500};

    // `stands`: how long a verdict has to stand until it ends the job.
    HangWatch(OnHang on_hang, std::chrono::milliseconds stands)
        : on_hang_(on_hang), stands_(stands) {}

    // The workers have been started.
    void begin(Time now);
    // When to look next; nothing: never.
    std::optional<Time> next() const { return next_; }
    // A worker may have been stopped, or gone on.
    void look_at_processes() { looks_at_processes_ = true; }
    // What is new, for the user; mostly nothing. `first_rank`: of the worker with local rank 0.
    std::vector<std::string> look(Time now, const contract::ControlRegion& pages,
                                  std::span<const Worker> workers, int first_rank);

    // For the report of an attempt that has ended: what held at the last look, or what the pages
    // say of its end.
    std::optional<HangFacts> facts(const contract::ControlRegion& pages,
                                   std::span<const Worker> workers, int first_rank) const;
    // Not while somebody debugs the rank.
    bool ends_job() const { return ends_job_; }
    // Whom others wait for; nothing: ranks that wait themselves.
    std::optional<int> to_blame() const;

private:
    // What is remembered of a rank from look to look.
    struct Memory {
        std::uint64_t seen = 0;  // serial of its last operation
        std::optional<Time> free_since;
        std::vector<contract::TransferRecord> transfers;  // that it waited in
        std::optional<Time> held_since;
        std::optional<Time> looked_at;  // its process
        std::chrono::milliseconds cpu_time{0};
        std::optional<double> cpu_share;
    };
    std::vector<RankState> read(const contract::ControlRegion& pages,
                                std::span<const Worker> workers, int first_rank) const;
    void learn(Time now, const contract::RankRecord& record, Memory& memory);
    static void look_at_process(Time now, RankState& state, const Worker& worker, Memory& memory);
    std::string note_held(Time now, RankState& state, Memory& memory) const;
    std::vector<std::string> news(Time now, std::optional<Verdict> found);

    OnHang on_hang_;
    std::chrono::milliseconds stands_;
    std::optional<Time> next_;
    // This host, or its clock, was at a standstill until then: what waited before waits since then.
    Time resumed_{};
    bool looks_at_processes_ = false;
    UsualTimes usual_;
    std::vector<Memory> memory_;
    std::optional<Verdict> verdict_;
    Time said_at_{};
    bool ends_job_ = false;
};

}  // namespace ddp::launcher
