// HangStacks: where the ranks that a verdict speaks of are in their programs. Read once for each
// verdict, and not too often.
#pragma once

#include "launcher/stacks/stack_reader.hpp"
#include "launcher/verdict/hang_judge.hpp"
#include "launcher/verdict/rank_observer.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp::launcher {

class HangStacks {
public:
    using Time = StackReader::Time;

    explicit HangStacks(bool is_wanted) : is_wanted_(is_wanted) {}

    // What stands now.
    void consider(Time now, const std::optional<Verdict>& verdict, const WatchedWorkers& workers);
    // Of those of the ranks that run here.
    void begin(Time now, const std::vector<int>& ranks, const WatchedWorkers& workers);
    // What has been read, for the user; mostly nothing.
    std::vector<std::string> take_news(Time now);

    std::optional<Time> next() const { return reader_.next(); }
    bool is_reading() const { return reader_.is_reading(); }
    pid_t helper() const { return reader_.helper(); }
    void end() { reader_.end(); }
    // Of the last verdict.
    const std::vector<RankStacks>& known() const { return known_; }

private:
    bool is_wanted_;
    StackReader reader_;
    std::optional<Verdict> verdict_;  // that has been considered last
    std::optional<Time> began_;
    std::set<int> waiting_;  // of those that are read, who is in a collective
    std::vector<RankStacks> known_;
};

}  // namespace ddp::launcher
