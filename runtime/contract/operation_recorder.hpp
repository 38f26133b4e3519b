// OperationRecorder: writes the collectives of one group into the rank's page, where they are
// readable also after the rank's death. Nothing here throws or blocks, but for the first call from
// a source file.
#pragma once

#include "contract/call_signature.hpp"
#include "contract/rank_page.hpp"

#include <ddp/call_site.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::contract {

// A group's id: the same for the same names, given in the same order; never 0.
std::uint32_t group_id(std::uint32_t parent, std::string_view name);

// This process is the rank now. What another one has left on the page, a program that ran before
// it, goes.
void take_page(ControlPage& page);

// The rank is at a checkpoint while such an object lives.
class CheckpointScope {
public:
    explicit CheckpointScope(ControlPage& page) noexcept : page_(page) { ++page_.checkpoints; }
    ~CheckpointScope() { --page_.checkpoints; }
    CheckpointScope(const CheckpointScope&) = delete;
    CheckpointScope& operator=(const CheckpointScope&) = delete;

private:
    ControlPage& page_;
};

// One thread at a time. Of a group for which the page has no room, of one rank, or with the id 0
// only the collectives are recorded, as of group 0.
class OperationRecorder {
public:
    OperationRecorder(ControlPage& page, std::uint32_t group, int ranks);
    ~OperationRecorder();  // the rank leaves the group
    OperationRecorder(const OperationRecorder&) = delete;
    OperationRecorder& operator=(const OperationRecorder&) = delete;

    // The rank is in this collective, which it has called at this time, until `ended`.
    void started(const CallSignature& call, const CallSite& site, std::uint64_t sequence,
                 std::chrono::steady_clock::time_point at) noexcept;
    void ended() noexcept;
    void failed() noexcept;  // instead; and with it the group

private:
    void end_group(GroupEnd end) noexcept;
    std::uint16_t place_of(const char* file) noexcept;

    // What a literal's address has been found to be.
    struct KnownFile {
        const char* name = nullptr;
        std::uint16_t place = 0;
    };

    ControlPage& page_;
    std::uint32_t id_ = 0;
    GroupEntry* group_ = nullptr;
    OperationEntry* running_ = nullptr;  // what it is in
    std::array<KnownFile, 8> known_{};
};

// Of the same group: the transfer that the rank waits in. One thread at a time. Outlives the page,
// if nothing is called any more.
class TransferRecorder {
public:
    TransferRecorder(ControlPage& page, std::uint32_t group) : page_(page), id_(group) {}

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
};

}  // namespace ddp::contract
