// Timeline: what a rank did and when, for the report of a job (--report, --trace). A ring behind
// the pages of the control region, in which the rank notes what has ended, as the page remembers
// its last collectives alone and no exact times. It outlives the rank. One writer's ring is read by
// the agent when the rank has ended.
// Invariant: whatever is in the ring, nothing outside it is read or written.
#pragma once

#include "contract/call_signature.hpp"
#include "contract/rank_page.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::contract {

enum class Activity : std::uint8_t {
    collective,
    transfer,    // waiting for one to move
    gradients,   // waiting for a backward's last gradients
    step,        // from one publish_progress to the next
    checkpoint,  // saving or loading
};
inline constexpr Activity last_activity = Activity::checkpoint;

// Something that a rank has done. Times are nanoseconds of CLOCK_MONOTONIC.
struct TimedActivity {
    Activity what = Activity::collective;
    std::int64_t started_ns = 0;
    std::int64_t ended_ns = 0;
    std::uint64_t number = 0;  // of a collective in its group; of a step
    std::uint32_t group = 0;   // of a collective: GroupEntry's id
    CallSignature call = {};   // of a transfer: `elements` bytes, `root` the peer in the job
    bool sends = false;        // of a transfer
    bool failed = false;       // it was given up then
    std::uint16_t file = 0;    // where its name is in the page; 0: not known
    std::uint32_t line = 0;
};

// Written while `serial` is 0.
struct TimelineEntry {
    std::atomic<std::uint64_t> serial;  // from 1
    std::atomic<std::int64_t> started_ns;
    std::atomic<std::int64_t> ended_ns;
    std::atomic<std::uint64_t> number;
    std::atomic<std::uint64_t> elements;
    std::atomic<std::uint32_t> group;
    std::atomic<std::uint32_t> source;
    std::atomic<std::int32_t> root;
    std::atomic<std::uint32_t> line;
    std::atomic<std::uint16_t> file;
    std::atomic<std::uint8_t> what;
    std::atomic<std::uint8_t> kind;
    std::atomic<std::uint8_t> dtype;
    std::atomic<std::uint8_t> op;
    std::atomic<std::uint16_t> flags;  // 1: uneven; 2: it sends; 4: it has failed
};
static_assert(sizeof(TimelineEntry) == 64);

// Before the entries of a ring.
struct TimelineHead {
    alignas(64) std::atomic<std::uint64_t> recorded;  // so far; number n is at (n - 1) % entries
    std::atomic<std::int64_t> step_ended_ns;          // the last one; 0: none has
};
static_assert(sizeof(TimelineHead) == 64);

inline constexpr std::size_t max_timeline_entries = std::size_t{1} << 20;

// A borrowed ring, or none: then nothing is recorded. Any thread; nothing throws or blocks.
class Timeline {
public:
    Timeline() = default;
    Timeline(TimelineHead& head, std::span<TimelineEntry> entries)
        : head_(&head), entries_(entries) {}

    static constexpr std::size_t bytes_for(std::size_t entries) {
        return entries == 0 ? 0 : sizeof(TimelineHead) + entries * sizeof(TimelineEntry);
    }

    bool is_on() const { return head_ != nullptr; }
    static std::int64_t now_ns() noexcept;
    void add(const TimedActivity& activity) const noexcept;
    // The step that began when the last one ended. The first of a program has no beginning.
    void end_step(std::int64_t step) const noexcept;
    void begin_program() const noexcept;

    // What is still there, the oldest first, and how many were there before it.
    struct Contents {
        std::uint64_t lost = 0;
        std::vector<TimedActivity> kept = {};
    };
    Contents read() const;

private:
    TimelineHead* head_ = nullptr;
    std::span<TimelineEntry> entries_;
};

// From now on until the scope ends, one activity, where there is a timeline.
class TimelineScope {
public:
    TimelineScope(Timeline timeline, Activity what, std::uint64_t number = 0) noexcept
        : timeline_(timeline), what_(what), number_(number) {
        if (timeline_.is_on()) started_ns_ = Timeline::now_ns();
    }
    ~TimelineScope() {
        if (!timeline_.is_on()) return;
        timeline_.add({.what = what_,
                       .started_ns = started_ns_,
                       .ended_ns = Timeline::now_ns(),
                       .number = number_});
    }
    TimelineScope(const TimelineScope&) = delete;
    TimelineScope& operator=(const TimelineScope&) = delete;

private:
    Timeline timeline_;
    Activity what_;
    std::uint64_t number_;
    std::int64_t started_ns_ = 0;
};

// For who reads a report: "all_reduce of 128 float32 (sum), bucket 3 of reducer 1", "send of 64
// bytes to rank 1 (train.cpp:42)", "step". The same for all calls of a line, and all backwards.
std::string describe(const TimedActivity& activity, const ControlPage& page);

}  // namespace ddp::contract
