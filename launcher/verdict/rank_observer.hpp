// RankObserver: looks at the pages and processes of an attempt's workers a few times a second, and
// learns how long their calls usually take. Invariant: nothing in a page does it harm.
#pragma once

#include "contract/control_page.hpp"
#include "launcher/verdict/rank_state.hpp"
#include "launcher/verdict/usual_times.hpp"
#include "launcher/worker/worker.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// An attempt's, by local rank.
struct WatchedWorkers {
    const contract::ControlRegion& pages;
    std::span<const Worker> all;
    int first_rank;      // of the one with local rank 0
    int world_size = 0;  // ranks of the job
};

class RankObserver {
public:
    using Time = RankState::Time;
    // Between two looks: once a rank has joined, and before.
    static constexpr std::chrono::milliseconds interval{250};
    static constexpr std::chrono::milliseconds interval_at_start{500};

    // The workers have been started.
    void begin(Time now) { next_ = now + interval_at_start; }
    // When to look next; nothing: never.
    std::optional<Time> next() const { return next_; }
    bool is_due(Time now) const { return next_ && now >= *next_; }
    // A worker may have been stopped, or gone on.
    void look_at_processes() { looks_at_processes_ = true; }
    // Their stacks are being read, by who holds them for that: what was known of them stands.
    void note_reading(bool is_reading) { is_reading_ = is_reading; }

    std::vector<RankState> look(Time now, const WatchedWorkers& workers);
    // What the pages say, and no more.
    std::vector<RankState> read(const WatchedWorkers& workers) const;
    const UsualTimes& usual() const { return usual_; }
    // This host, or its clock, was at a standstill until then.
    Time resumed() const { return resumed_; }

private:
    // What is remembered of a rank from look to look.
    struct Memory {
        std::uint64_t seen = 0;  // serial of its last operation
        std::optional<Time> free_since;
        std::vector<contract::TransferRecord> transfers;  // that it waited in
        std::optional<Time> held_since;
        std::optional<Time> looked_at;  // its process
        ProcessState process;           // as it was then
        std::uint64_t activity = 0;     // likewise, what its page said
        std::chrono::milliseconds cpu_time{0};
        std::optional<double> cpu_share;
    };
    void learn(Time now, const contract::RankRecord& record, Memory& memory);
    void look_at_process(Time now, RankState& state, const Worker& worker, Memory& memory) const;

    std::optional<Time> next_;
    Time resumed_{};  // what waited before waits since then
    bool looks_at_processes_ = false;
    bool is_reading_ = false;
    UsualTimes usual_;
    std::vector<Memory> memory_;
};

}  // namespace ddp::launcher
