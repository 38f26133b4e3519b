// HangStacks: where the ranks that a verdict speaks of are in their programs, read once for each
// verdict; and of ranks that record nothing, the verdict itself.
#pragma once

#include "launcher/stacks/stack_reader.hpp"
#include "launcher/verdict/hang_judge.hpp"
#include "launcher/verdict/rank_observer.hpp"
#include "launcher/verdict/silent/silent_judge.hpp"
#include "launcher/verdict/silent/silent_threads.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {

class HangStacks {
public:
    using Time = StackReader::Time;

    explicit HangStacks(bool is_wanted) : is_wanted_(is_wanted) {}

    // Of a job none of whose ranks has recorded anything: whether they hang, or one is slow. Reads
    // them for that when one has not run for long, or waits much less than the others.
    void look_at_silent(Time now, const WatchedWorkers& workers);
    const std::optional<Verdict>& verdict() const { return silent_.verdict(); }
    std::vector<std::string> take_news_of_slow() { return silent_.take_news_of_slow(); }
    std::optional<UnreadRanks> take_unread() { return silent_.take_unread(); }
    const std::optional<SlowFacts>& slow() const { return silent_.slow(); }

    // Instead, for who judges the ranks of several hosts: the threads of those that run here, each
    // second; mostly nothing, as where ranks have recorded something.
    std::optional<std::vector<RankRuns>> take_threads(Time now, const WatchedWorkers& workers);
    // And where all of them are; while others are read, of none.
    void read_silent(Time now, const WatchedWorkers& workers, std::uint64_t question);
    // What that was asked for; mostly nothing: the question is 0.
    struct Readings {
        std::uint64_t question = 0;
        std::vector<RankReading> ranks = {};
        std::vector<int> ended = {};  // ranks that have, and are not read
    };
    Readings take_readings() { return std::exchange(readings_, {}); }

    // What stands now: where its ranks are is read, and becomes news.
    void consider(Time now, const std::optional<Verdict>& verdict, const WatchedWorkers& workers);
    // The same of those of the ranks that run here. Does nothing while others are read, and for a
    // while after those.
    void read(Time now, const std::vector<int>& ranks, const WatchedWorkers& workers,
              std::uint64_t question);
    // Takes what has been read meanwhile. Does not block.
    void take(Time now);
    // For the user; mostly nothing.
    std::vector<std::string> take_news() { return std::exchange(news_, {}); }
    // What read() was asked for, for who asked; mostly nothing.
    struct Answer {
        std::uint64_t question = 0;
        std::vector<RankStacks> stacks = {};
    };
    Answer take_answer() { return {answer_.question, std::exchange(answer_.stacks, {})}; }

    std::optional<Time> next() const { return is_reading() ? reader_.next() : threads_.next(); }
    bool is_reading() const { return reader_.is_reading(); }
    pid_t helper() const { return reader_.helper(); }
    void end() { reader_.end(); }
    // Of that verdict, as far as has been read.
    std::vector<RankStacks> known(const Verdict& verdict) const {
        return verdict_ && verdict_->is_same_as(verdict) ? known_ : std::vector<RankStacks>{};
    }

private:
    // silent: of all ranks, to be judged here; told: by who judges those of several hosts.
    enum class Purpose : std::uint8_t { silent, told, verdict, question };
    bool may_read(Time now) const;
    void begin(Time now, Purpose purpose, const std::vector<int>& ranks,
               const WatchedWorkers& workers);
    void begin_all(Time now, Purpose purpose, const WatchedWorkers& workers);
    void judge(Time now, std::vector<RankStacks> stacks);
    void tell(std::vector<RankStacks> stacks);

    bool is_wanted_;
    StackReader reader_;
    Purpose purpose_ = Purpose::silent;  // of what is read
    std::optional<Time> began_;
    std::map<int, bool> recorded_;  // of those that are read and record: whether they are in a call
    std::vector<int> ended_;        // who could not be read any more
    std::vector<RankStacks> judged_;  // of all, by which the judge has found a verdict
    SilentJudge silent_;
    SilentThreads threads_;
    std::uint64_t question_ = 0;  // for which is read
    Readings readings_;
    std::optional<Verdict> verdict_;  // that has been considered last
    std::vector<RankStacks> known_;
    Answer answer_;
    std::vector<std::string> news_;
};

}  // namespace ddp::launcher
