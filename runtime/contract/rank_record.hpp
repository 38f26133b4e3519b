// RankRecord: what a rank's page says, copied and made plain. Whatever is in the page, which any
// worker of the job may have written over: what makes no sense is left out.
#pragma once

#include "contract/call_signature.hpp"
#include "contract/rank_page.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::contract {

struct OperationRecord {
    using Time = std::chrono::steady_clock::time_point;

    std::uint64_t serial = 0;  // see OperationEntry
    std::uint32_t group = 0;
    std::uint64_t sequence = 0;
    CallSignature call = {};
    std::string file = {};   // the last part of its path; empty: not known
    std::uint32_t line = 0;  // likewise 0
    Time started = {};
    std::optional<Time> ended = {};
};
// "all_reduce of 128 float32 (sum), operation 57 (train.cpp:42)"; of all alike without the number.
std::string describe(const OperationRecord& operation, Naming naming = Naming::one_call);

struct TransferRecord {
    bool sends = false;
    int peer = 0;  // its number in the job
    std::uint64_t bytes = 0;
    std::string file = {};
    std::uint32_t line = 0;
    OperationRecord::Time since = {};
};
// "recv of 1024 bytes from rank 1 (train.cpp:42)"
std::string describe(const TransferRecord& transfer);

struct GroupRecord {
    std::uint32_t id = 0;
    int size = 0;
    std::uint64_t started = 0;
    std::uint64_t ended = 0;
    GroupEnd end = GroupEnd::none;
    bool on_gpu = false;  // its collectives may be launched long before they can begin
    std::optional<TransferRecord> transfer = {};  // that the rank waits in

    // In a collective, or its GPU is.
    bool is_waiting() const { return started > ended && end == GroupEnd::none; }
    std::uint64_t waits_in() const { return ended + 1; }  // its number, where it is
};

// The collective that a rank is in, or else the last one that it has called.
struct LastCall {
    const OperationRecord* operation;  // the record's
    bool is_in;
};
// "in barrier, operation 7 (a.cpp:9)", or "after" it.
std::string describe(const LastCall& call);

struct RankRecord {
    pid_t pid = 0;  // 0: it has not joined
    Phase phase = Phase::starting;
    bool is_at_checkpoint = false;
    bool waits_unrecorded = false;  // in a collective of a group that is not among `groups`
    std::int64_t step = 0;
    OperationRecord::Time joined = {};
    std::vector<GroupRecord> groups = {};
    std::vector<OperationRecord> operations = {};  // the oldest first

    const GroupRecord* find_group(std::uint32_t id) const;  // null: it is not in it
    // Null: it was too long ago, or has not been called.
    const OperationRecord* find_operation(std::uint32_t group, std::uint64_t sequence) const;
    std::optional<LastCall> last_call() const;  // nothing: none is recorded
};

// What it has published of its progress; zeros: nothing, or what is none.
struct Progress {
    std::int64_t step = 0;
    double steps_per_second = 0;
    std::uint64_t bytes = 0;              // that collectives were called with on this rank
    std::chrono::nanoseconds exposed{0};  // that its steps have waited for their gradients
};
Progress read_progress(const ControlPage& page);

RankRecord read_page(const ControlPage& page);

// For readers of what ranks write: the last part of the path of a source file whose name is at that
// place of the page; empty: none is.
std::string file_at(const ControlPage& page, std::size_t place);
// Nothing: there is no such enumerator.
template <class Enum>
std::optional<Enum> enumerator(std::uint8_t value, Enum last) {
    if (value > static_cast<std::uint8_t>(last)) return std::nullopt;
    return static_cast<Enum>(value);
}

}  // namespace ddp::contract
