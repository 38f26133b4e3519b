// Between a test's process and its ranks: one memory file for the values that the test has made and
// one a rank for its reports. The launcher passes no descriptors on, so ranks open them by the
// process that has them: DDP_TEST_RANKS=<pid>:<values>:<reports of rank 0>,<of rank 1>,...
#pragma once

#include "base/unique_fd.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ddp::testing {

// In the test's process. Throws SystemError.
class RankLinks {
public:
    RankLinks(int ranks, const std::vector<std::string>& values);

    std::string variable() const;  // "DDP_TEST_RANKS=..."
    // What a rank has reported until now, whole frames only.
    std::vector<std::string> reports(int rank) const;

private:
    base::UniqueFd values_;
    std::vector<base::UniqueFd> reports_;
};

inline constexpr std::size_t max_report_bytes = 16 << 20;

// In a rank that has not come to its call yet.
bool is_waiting_rank();
// The value of this number, from 0. Throws UsageError when the test had made fewer.
std::string value_of_test(std::size_t number);
// Ends the waiting: lets stdout be seen, and opens the reports. Throws SystemError.
base::UniqueFd begin_body();

}  // namespace ddp::testing
