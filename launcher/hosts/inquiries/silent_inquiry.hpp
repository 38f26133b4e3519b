// SilentInquiry: who holds up or slows down a job of several hosts whose ranks record nothing, as
// PyTorch's. All hosts tell each second how the threads of their ranks run; when that is strange
// all are asked where their ranks are, and what they answer is judged as one host's is. Pure.
//
//   watching  until a thread has stood still for long, or waits much less than the others
//   asking    until all have answered, or had their time; then judged
//
// Invariant: nothing is judged of which a host has not told lately, or not of all of its ranks; a
// member tells of those alone that the round's table gives it.
#pragma once

#include "launcher/hosts/membership/membership_actions.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/verdict/silent/silent_judge.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp::launcher {

class SilentInquiry {
public:
    using Time = SilentJudge::Time;
    // Of many ranks, and py-spy takes its time.
    static constexpr std::chrono::seconds time_to_answer{20};
    static constexpr std::chrono::seconds between_judgements{1};
    static constexpr std::chrono::seconds lately{3};
    // Of a host that tells nothing for so long nothing holds any more.
    static constexpr std::chrono::seconds long_ago{30};

    // What was seen in the last one is forgotten.
    void begin_round(const RoundMessage& round);
    void note(Time now, MemberId by, const ThreadsMessage& message);
    void note(MemberId by, ReadingsMessage message);
    void note(MemberId by, const EndedMessage& message);
    // Ranks that record are others' business.
    void note(const SightingMessage& message);

    // To all hosts of the round; nothing: none is due. Judges what they have told before.
    std::optional<ReadMessage> take_question(Time now);

    // What stands.
    const std::optional<Verdict>& verdict() const { return judge_.verdict(); }
    const std::optional<SlowFacts>& slow() const { return judge_.slow(); }
    struct News {
        // Of slow ranks, and of such that cannot be read, for the users; mostly nothing.
        std::vector<std::string> texts = {};
        std::vector<MemberId> concerned = {};  // their hosts
    };
    News take_news();

private:
    struct Told {
        Time at{};
        std::vector<RankRuns> threads = {};
    };
    bool has_ended(const HostRanks& host) const;
    bool has_all_answers() const;
    void judge_answers(Time now);
    std::optional<std::vector<RankRuns>> take_threads(Time now);

    RoundMessage round_;
    SilentJudge judge_;
    std::map<MemberId, Told> told_;
    std::map<int, ProcessUse> uses_;  // by rank, the last that was told
    std::set<int> ended_;             // ranks
    Time next_look_{};
    std::uint64_t question_ = 0;  // the last one
    bool is_asking_ = false;
    Time asked_{};
    std::map<MemberId, ReadingsMessage> answers_;  // to it
    std::vector<int> slow_before_;                 // ranks that have been spoken of
};

}  // namespace ddp::launcher
