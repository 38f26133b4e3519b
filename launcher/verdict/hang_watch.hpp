// HangWatch: this host's ranks, observed, and what is to be said of them: which of them slow down
// the others and, where they are all of the job, who holds it up.
#pragma once

#include "launcher/verdict/call_shares.hpp"
#include "launcher/verdict/hang_news.hpp"
#include "launcher/verdict/rank_observer.hpp"
#include "launcher/verdict/slow_news.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {

class HangWatch {
public:
    using Time = Verdict::Time;

    // As HangNews.
    HangWatch(OnHang on_hang, std::chrono::milliseconds stands) : news_(on_hang, stands) {}

    // The workers have been started.
    void begin(Time now) {
        if (news_.is_wanted()) observer_.begin(now);
    }
    // When to look next; nothing: never.
    std::optional<Time> next() const { return observer_.next(); }
    // A worker may have been stopped, or gone on.
    void look_at_processes() { observer_.look_at_processes(); }
    void note_reading(bool is_reading) { observer_.note_reading(is_reading); }

    // What is new, for the user; mostly nothing, and before next() always. `by_stacks`: as
    // HangNews's.
    std::vector<std::string> look(Time now, const WatchedWorkers& workers,
                                  const std::optional<Verdict>& by_stacks);
    const HangNews& news() const { return news_; }
    // What has become known of slow ranks by look(), for the user; mostly nothing.
    std::vector<std::string> take_news_of_slow() { return std::exchange(news_of_slow_, {}); }
    const std::optional<SlowFacts>& slow() const { return slow_.facts(); }
    // Instead, for who judges the ranks of several hosts, after see(): how they have spent a
    // stretch that has ended; mostly nothing.
    std::optional<Paces> take_paces() { return std::exchange(paces_, std::nullopt); }
    // For the report of an attempt that has ended.
    std::optional<HangFacts> facts(const WatchedWorkers& workers) const;

    // Instead, for who judges the ranks of several hosts: what is to be seen now, and what is usual
    // in those calls. Before begin(), or where it is not wanted: nothing.
    Sighting see(Time now, const WatchedWorkers& workers, const std::vector<CallKey>& calls);
    // The same of an attempt that has ended: its records.
    Sighting see_end(const WatchedWorkers& workers) const;

private:
    void look_for_slow(Time now, const WatchedWorkers& workers,
                       const std::vector<RankState>& ranks);

    RankObserver observer_;
    HangNews news_;
    CallShares shares_;
    SlowNews slow_;
    std::optional<Paces> paces_;
    std::vector<std::string> news_of_slow_;
};

}  // namespace ddp::launcher
