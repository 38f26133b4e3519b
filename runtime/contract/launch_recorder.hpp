// LaunchRecorder: writes what a group has under way on its GPU into the rank's page, beside what
// OperationRecorder writes.
#pragma once

#include "contract/control_page.hpp"
#include "contract/operation_recorder.hpp"

#include <chrono>
#include <cstdint>
#include <memory>

namespace ddp::contract {

// The collectives that a group launches on its GPU, which end in the order in which they are
// launched. Keeps the region. Of a group without an entry it is recorded that something is under
// way, and so of transfers.
class LaunchRecorder {
public:
    LaunchRecorder(std::shared_ptr<ControlRegion> region, std::uint32_t group, int ranks);
    ~LaunchRecorder() { end(GroupEnd::left); }
    LaunchRecorder(const LaunchRecorder&) = delete;
    LaunchRecorder& operator=(const LaunchRecorder&) = delete;

    struct Launch {
        OperationEntry* entry = nullptr;  // null: there is none
        std::uint64_t serial = 0;
        std::uint64_t sequence = 0;
        TimedActivity timed = {};  // where there is a timeline
    };
    // One thread at a time: the next one, that was launched at this time.
    Launch launched(const CallSignature& call, const CallSite& site,
                    std::chrono::steady_clock::time_point at) noexcept;
    Launch launched_transfer() noexcept;
    // Any thread, once for each: it is done, or never will be.
    void ended(const Launch& launch) noexcept;
    void aborted(const Launch& launch) noexcept;
    // One thread at a time, which may be another: the oldest that is under way. Later ones may have
    // taken its place in the ring; then it gets another.
    void keep(Launch& launch, const CallSignature& call, const CallSite& site,
              std::chrono::steady_clock::time_point at) noexcept;
    void end(GroupEnd end) const noexcept { group_.end(end); }

private:
    void note_end(const Launch& launch, bool failed) const noexcept;

    std::shared_ptr<ControlRegion> region_;
    RecordedGroup group_;
    OperationWriter writer_;
    OperationWriter keeper_;
    std::uint64_t launches_ = 0;
};

}  // namespace ddp::contract
