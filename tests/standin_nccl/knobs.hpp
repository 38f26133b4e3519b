// What the test has asked for: see stand_in.h.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stand_in {

enum class FaultKind { die, hang, error, fail };

struct Fault {
    static constexpr std::int64_t in_init = -1;
    static constexpr std::int64_t in_abort = -2;
    static constexpr std::int64_t in_id = -3;
    static constexpr std::int64_t in_window = -4;
    static constexpr std::int64_t after_split = -5;

    FaultKind kind = FaultKind::hang;
    int rank = 0;
    std::int64_t when = 0;  // the number of an operation, or one of the above
    ncclResult_t result = ncclSystemError;
};

int library_version();  // of this variant of the library

struct Knobs {
    int version = library_version();
    bool lenient = false;
    std::chrono::microseconds operation_delay{0};
    std::chrono::microseconds launch_delay{0};
    int launch_polls = 0;
    bool symmetric = true;
    std::optional<std::chrono::milliseconds> remote_error;
    std::vector<Fault> faults;

    std::optional<Fault> fault(int rank, std::int64_t when) const;
};

Knobs knobs();  // as they are now

void count_call(const char* function);

// Ends the process, or returns ncclInvalidUsage when the test wants that.
ncclResult_t misuse(const std::string& what);
// Sets what ncclGetLastError says on this thread, and returns `result`.
ncclResult_t failed(ncclResult_t result, const std::string& why);
const char* last_error();

}  // namespace stand_in
