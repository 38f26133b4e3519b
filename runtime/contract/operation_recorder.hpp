// Recorders: they write what a rank is in into its page, where it is readable also after the rank's
// death: OperationRecorder a group's collectives, TransferRecorder its transfers; LaunchRecorder
// (launch_recorder.hpp) what it launches on a GPU. Nothing here throws or blocks, but for the first
// call from a source file.
#pragma once

#include "contract/call_signature.hpp"
#include "contract/rank_page.hpp"
#include "contract/timeline.hpp"

#include <ddp/call_site.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::contract {

// The clock of the page.
std::int64_t page_time_ns() noexcept;

// A group's id: the same for the same names, given in the same order; never 0.
std::uint32_t group_id(std::uint32_t parent, std::string_view name);

// This process is the rank now. What another one has left on the page, a program that ran before
// it, goes.
void take_page(ControlPage& page, Timeline timeline = {});

// The rank is at a checkpoint while such an object lives.
class CheckpointScope {
public:
    explicit CheckpointScope(ControlPage& page, Timeline timeline = {}) noexcept
        : page_(page), timed_(timeline, Activity::checkpoint) {
        ++page_.checkpoints;
    }
    ~CheckpointScope() { --page_.checkpoints; }
    CheckpointScope(const CheckpointScope&) = delete;
    CheckpointScope& operator=(const CheckpointScope&) = delete;

private:
    ControlPage& page_;
    TimelineScope timed_;
};

// A group's entry on the page; or none, of a group for which there is no room, of one rank, or with
// the id 0. Any thread.
class RecordedGroup {
public:
    enum class On : std::uint8_t { cpu, gpu };
    RecordedGroup(ControlPage& page, std::uint32_t group, int ranks, On on = On::cpu);

    std::uint32_t id() const { return id_; }
    GroupEntry* entry() const { return entry_; }  // null: there is none
    // The rank has left it, or it has failed; the first counts.
    void end(GroupEnd end) const noexcept;
    bool has_entry() const noexcept;  // which may be another group's, once it has ended

private:
    ControlPage& page_;
    std::uint32_t id_ = 0;
    GroupEntry* entry_ = nullptr;
};

// Counts what a collective is called with. One thread at a time.
inline void add_bytes(std::atomic<std::uint64_t>& bytes, const CallSignature& call) noexcept {
    bytes.store(bytes.load(std::memory_order_relaxed) + call.elements * size_of(call.dtype),
                std::memory_order_relaxed);
}

// Entries of the ring, written one after the other. One thread at a time.
class OperationWriter {
public:
    explicit OperationWriter(ControlPage& page) : page_(page) {}

    // The entry's serial is that of the call.
    OperationEntry& write(const CallSignature& call, const CallSite& site, std::uint32_t group,
                          std::uint64_t sequence,
                          std::chrono::steady_clock::time_point at) noexcept;

private:
    std::uint16_t place_of(const char* file) noexcept;

    // What a literal's address has been found to be.
    struct KnownFile {
        const char* name = nullptr;
        std::uint16_t place = 0;
    };

    ControlPage& page_;
    std::array<KnownFile, 8> known_{};
};

// One thread at a time. Of a group without an entry only the collectives are recorded, as of group
// 0.
class OperationRecorder {
public:
    OperationRecorder(ControlPage& page, std::uint32_t group, int ranks, Timeline timeline = {})
        : page_(page), group_(page, group, ranks), writer_(page), timeline_(timeline) {}
    ~OperationRecorder() { group_.end(GroupEnd::left); }
    OperationRecorder(const OperationRecorder&) = delete;
    OperationRecorder& operator=(const OperationRecorder&) = delete;

    // The rank is in this collective, which it has called at this time, until `ended`.
    void started(const CallSignature& call, const CallSite& site, std::uint64_t sequence,
                 std::chrono::steady_clock::time_point at) noexcept;
    void ended() noexcept;
    void failed() noexcept;  // instead; and with it the group

private:
    ControlPage& page_;
    RecordedGroup group_;
    OperationWriter writer_;
    OperationEntry* running_ = nullptr;  // what it is in
    Timeline timeline_;
    TimedActivity timed_;  // the same, where there is one
};

// Of the same group: the transfer that the rank waits in. One thread at a time. Outlives the page,
// if nothing is called any more.
class TransferRecorder {
public:
    TransferRecorder(ControlPage& page, std::uint32_t group, Timeline timeline = {})
        : page_(page), id_(group), timeline_(timeline) {}

    struct Transfer {
        bool sends;
        int peer;  // its number in the job
        std::uint64_t bytes;
    };
    void waits(const Transfer& transfer, const CallSite& site) noexcept;  // from now on
    void goes_on() noexcept;

private:
    ControlPage& page_;
    std::uint32_t id_;
    bool is_waiting_ = false;
    TransferEntry* entry_ = nullptr;  // null: it does not wait, or there is no room
    Timeline timeline_;
    TimedActivity timed_;
};

}  // namespace ddp::contract
