// WorkerWatch: looks from time to time at what an attempt's workers publish, and tells the front of
// it: how far they are, who holds them up, and who slows them down.
#pragma once

#include "launcher/agent/attempt/hang_stacks.hpp"
#include "launcher/agent/attempt/progress_watch.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/options/options.hpp"
#include "launcher/verdict/hang_watch.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {

// Of a job of several hosts: who is told instead of the front.
struct TellHosts {
    std::function<void(const StatusMessage& part)> progress = {};
    std::function<void(Sighting seen)> sighting = {};  // an alarm: a rank waits for too long
    std::function<void(Paces paces)> paces = {};       // of a stretch that has ended
    // That were asked for, with that question.
    std::function<void(std::uint64_t question, std::vector<RankStacks> stacks)> stacks = {};
    // Of ranks that record nothing, each second; and where they are, that was asked for.
    std::function<void(std::vector<RankRuns> threads)> threads = {};
    std::function<void(HangStacks::Readings told)> readings = {};
};

class WorkerWatch {
public:
    using Time = HangWatch::Time;

    WorkerWatch(Watching progress, int restarts, const StopOptions& stop);

    void begin(Time now) { hang_.begin(now); }  // the workers have been started
    // When to look next; nothing: never. `is_stopping`: the workers are being stopped.
    std::optional<Time> next(bool is_stopping) const;
    // A worker may have been stopped, or gone on.
    void look_at_processes() { hang_.look_at_processes(); }

    // Returns the rank because of which the job is to be stopped; -1: none that others wait for.
    std::optional<int> look(const WatchedWorkers& workers, bool is_stopping, Channel& channel,
                            const TellHosts& tell);
    // Whether look() has told of a verdict, or see() has been asked because of one, since the last
    // call.
    bool take_verdict_news() { return std::exchange(has_told_verdict_, false); }
    // As HangWatch's.
    std::optional<HangFacts> facts(const WatchedWorkers& workers) const;
    // Where ranks are whose stacks are asked for, the front is told.
    Sighting see(const WatchedWorkers& workers, const LookMessage& look) {
        asked_at_ = Time::clock::now();
        hang_.look_at_processes();
        hang_.note_reading(stacks_.is_reading());
        stacks_.read(asked_at_, look.stacks_of, workers, look.question);
        note_verdict_elsewhere(look.stacks_of);
        return hang_.see(asked_at_, workers, look.calls);
    }
    // Where all ranks are that record nothing, for who has asked with that question.
    void read_silent(const WatchedWorkers& workers, std::uint64_t question) {
        stacks_.read_silent(Time::clock::now(), workers, question);
    }
    Sighting see_end(const WatchedWorkers& workers) const { return hang_.see_end(workers); }

    const std::optional<SlowFacts>& slow() const {
        return hang_.slow() ? hang_.slow() : stacks_.slow();
    }
    // The child that reads stacks now; 0: there is none.
    pid_t stack_reader() const { return stacks_.helper(); }
    void end_reading_stacks() { stacks_.end(); }

private:
    void note_verdict_elsewhere(const std::vector<int>& ranks);
    void tell_of_slow(Channel& channel);
    void tell_of_silent(Time now, const WatchedWorkers& workers, const TellHosts& tell);
    void tell_of_stacks(Channel& channel);

    std::chrono::milliseconds grace_;
    ProgressWatch progress_;
    HangWatch hang_;
    HangStacks stacks_;
    Time asked_at_{};
    Time next_uses_{};
    bool has_told_verdict_ = false;
    std::vector<int> judged_elsewhere_;  // of several hosts: whom the last verdict speaks of
};

// What to say, once the workers of a first attempt have ended, of a drill (`inject`: --inject's;
// empty: none) that has not taken place, as its rank has not published the step: else its user
// would take the job for one that has borne it. Mostly nothing.
std::string missed_drill(const std::string& inject, const WatchedWorkers& workers);

}  // namespace ddp::launcher
