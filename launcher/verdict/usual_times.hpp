// UsualTimes: how long the ranks of this job have waited in each of its calls so far, and computed
// before it, from which follows when a wait is no longer a usual one. Pure. A call is a place in
// the program, or a reducer's bucket.
#pragma once

#include "contract/rank_record.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ddp::launcher {

// A call, the same on all hosts whose launchers are of one version.
using CallKey = std::uint64_t;
CallKey key_of(const contract::OperationRecord& operation);
CallKey key_of(const contract::TransferRecord& transfer);

// What is usual for ranks of this job.
class Patience {
public:
    using Duration = std::chrono::nanoseconds;

    virtual ~Patience() = default;
    // How long ranks may wait in it for others.
    virtual Duration patience(const contract::OperationRecord& operation) const = 0;
    virtual Duration patience(const contract::TransferRecord& transfer) const = 0;
    // How long a rank may take from its last call to this one.
    virtual Duration time_before(const contract::OperationRecord& operation) const = 0;
    // It has been seen often enough to know.
    virtual bool is_taught(const contract::OperationRecord& operation) const = 0;
};

// The same of one call, as a host tells it.
struct UsualTime {
    CallKey call = 0;
    Patience::Duration patience{0};
    Patience::Duration before{0};
    bool is_taught = true;
};

class UsualTimes : public Patience {
public:
    using Time = contract::OperationRecord::Time;

    // No wait is an unusual one before that.
    static constexpr Duration least = std::chrono::milliseconds{500};
    // Of a call that has not been seen often enough.
    static constexpr Duration untaught = std::chrono::seconds{5};

    // One that has ended; `free_since`: when the rank's call before that had, if it is known.
    // Counts once settle() is called: of the ranks of one call the one that waited longest, and the
    // one that computed longest.
    void note(const contract::OperationRecord& operation, std::optional<Time> free_since);
    void settle();
    // A transfer that somebody had waited in, which is done.
    void note(const contract::TransferRecord& transfer, Duration waited);

    Duration patience(const contract::OperationRecord& operation) const override;
    Duration patience(const contract::TransferRecord& transfer) const override;
    Duration time_before(const contract::OperationRecord& operation) const override;
    bool is_taught(const contract::OperationRecord& operation) const override;
    // After so long in a call somebody should look: its patience, or of one that it does not know
    // the least.
    Duration alarm_after(const contract::OperationRecord& operation) const;
    // Of those calls the ones that it knows.
    std::vector<UsualTime> tell(const std::vector<CallKey>& calls) const;

private:
    static constexpr std::size_t samples = 15;
    static constexpr std::size_t needed = 10;
    static constexpr std::size_t most_calls = 4096;

    struct Samples {
        std::array<Duration, samples> last{};
        std::size_t count = 0;
        Duration longest{0};  // it fades

        void add(Duration value);
        Duration median() const;
        // What is more is not usual. `untaught`: as long as too few are known, at least that.
        Duration most(Duration untaught) const;
    };
    struct Call {
        Samples waits;
        Samples before;
    };
    struct Noted {
        Duration wait{0};
        std::optional<Duration> before;
    };

    std::unordered_map<CallKey, Call> calls_;
    std::unordered_map<CallKey, Duration> transfers_;           // the longest wait in each
    std::map<std::pair<CallKey, std::uint64_t>, Noted> noted_;  // by call and sequence
};

// What several hosts have told: of each call the most. One that none of them knows is untaught.
class ToldTimes : public Patience {
public:
    void add(const UsualTime& told);

    Duration patience(const contract::OperationRecord& operation) const override;
    Duration patience(const contract::TransferRecord& transfer) const override;
    Duration time_before(const contract::OperationRecord& operation) const override;
    bool is_taught(const contract::OperationRecord& operation) const override;

private:
    std::unordered_map<CallKey, UsualTime> told_;
};

}  // namespace ddp::launcher
