// JobTimeline: what the ranks of a job have done, attempt by attempt, for --report and --trace.
// Gathered from their rings (contract/timeline.hpp) once nothing of an attempt lives; of a job of
// several hosts, of what each tells of its ranks.
// Invariant: of older attempts than the last at most `most` activities are kept, and of the last no
// more than its rings have, or twice most_activities where others tell of it; else the ranks'
// beginnings and ends are, and how many activities have gone.
#pragma once

#include "contract/control_page.hpp"
#include "contract/rank_record.hpp"
#include "contract/timeline.hpp"
#include "launcher/worker/worker.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// Times are nanoseconds of CLOCK_MONOTONIC.
struct TimelineItem {
    std::int64_t started = 0;
    std::int64_t ended = 0;
    std::uint64_t number = 0;
    std::uint32_t name = 0;   // index of JobTimeline::names()
    std::uint32_t group = 0;  // of a collective: index of JobTimeline::groups()
    contract::Activity what = contract::Activity::step;
    bool has_ended = true;  // by itself; else it failed, or the rank ended in it
};

struct RankTimeline {
    int rank = 0;
    std::string host = {};  // of a job of several
    pid_t pid = 0;
    std::int64_t started = 0;
    std::int64_t ended = 0;
    std::string end = {};                  // "exit code 0"
    bool has_joined = false;               // it is a program of this library
    std::uint64_t lost = 0;                // activities before those of `items`
    std::vector<TimelineItem> items = {};  // by their beginnings
};

// A group of ranks, or of their GPUs, by its id; of the same id in all programs and attempts.
struct TimelineGroup {
    std::uint32_t id = 0;  // 0: all those that no page has an entry for
    int size = 0;          // 0: not known
    bool on_gpu = false;   // its collectives last from their launch, and may overlap
};

struct AttemptTimeline {
    int attempt = 0;        // 0, 1, ...
    std::string text = {};  // what was said of its end; empty: all went well
    std::vector<RankTimeline> ranks = {};
};

// Some of what a rank has done, by itself: `items` name what the tables here have.
struct TimelinePart {
    int attempt = 0;
    std::vector<std::string> names = {};
    std::vector<TimelineGroup> groups = {};
    RankTimeline rank = {};
};

class JobTimeline {
public:
    static constexpr std::size_t most_activities = contract::max_timeline_entries;
    static constexpr std::size_t most_names = 4096;  // more have the last one
    static constexpr std::size_t most_groups = 256;  // likewise
    static constexpr std::size_t most_attempts = 1000;
    // The size of each rank's ring, of so many on this host.
    static std::size_t entries_for(int workers);

    explicit JobTimeline(std::size_t most = most_activities) : most_(most) {}

    // An attempt of which nothing lives. `text`: AttemptTimeline's.
    void note(int attempt, const contract::ControlRegion& pages, std::span<const Worker> workers,
              int first_rank, std::string text);

    // Instead, of an attempt on several hosts: it begins; some of what one of its ranks has done,
    // in the order of parts(); what was said of its end.
    void begin(int attempt);
    void add(TimelinePart part);
    void set_text(std::string text);
    // The last attempt, for add() of another: each with at most `most_items` and some of the names.
    static constexpr std::size_t most_items_of_part = 40'000;
    std::vector<TimelinePart> parts(std::size_t most_items = most_items_of_part) const;

    const std::vector<AttemptTimeline>& attempts() const { return attempts_; }
    const std::vector<std::string>& names() const { return names_; }
    const std::vector<TimelineGroup>& groups() const { return groups_; }
    // The beginning of the first worker; 0: none was started.
    std::int64_t began() const;

private:
    void note_rank(const contract::ControlRegion& pages, int local_rank, RankTimeline& rank);
    void note_groups(const contract::RankRecord& record);
    void note_unfinished(const contract::RankRecord& record, RankTimeline& rank);
    std::uint32_t name(const std::string& text);
    std::uint32_t group(std::uint32_t id);
    void forget_what_is_too_much();

    std::size_t most_;
    std::vector<AttemptTimeline> attempts_;
    std::size_t items_of_last_ = 0;  // that add() has taken
    std::vector<std::string> names_;
    std::map<std::string, std::uint32_t> index_of_name_;
    std::vector<TimelineGroup> groups_;
    std::map<std::uint32_t, std::uint32_t> index_of_group_;
};

}  // namespace ddp::launcher
