// The file that `ddp-bench --tune` writes and DDP_SHM_TUNING=@FILE names: what differs from the
// built-in table on one host or more, a row a line, for a processor and a number of ranks:
//
//     GenuineIntel/6/207 ranks=2 cores=2 string_bytes=2K,swapped_slots=1
//
// Words are separated by blanks; empty lines and lines that begin with # are passed over. A row
// without overrides says that the built-in table is best there.
// Invariant: a row changes speed, never a bit, and a file that cannot be read as a whole is refused
// as a whole, also where the wrong row is of another processor.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::shm {

// Read where DDP_SHM_TUNING is not set, if it exists.
inline constexpr const char* system_tuning_file = "/etc/ddp/shm_tuning";
// Of the largest file that is read.
inline constexpr std::size_t most_tuning_file_bytes = 256 * 1024;

// Nothing when there is no such file. Throws UsageError, which begins with `whose` (the variable or
// the option that named it), when it cannot be read or is no regular file.
std::optional<std::string> read_tuning_file(const std::string& file, const char* whose);

// The overrides of the row that fits: of `processor` (base::processor_name()), with more ranks than
// cores or not, as here, and of those with at least so many ranks the one with the fewest; of two
// with as many, that with so many cores. Empty when none does. Throws UsageError, with the file and
// the line, for a wrong row or two of the same processor, ranks and cores.
std::string find_overrides(std::string_view text, const std::string& file,
                           std::string_view processor, int ranks, int cores);

// The text with that row in the place of the one of the same processor, ranks and cores, or at its
// end. Throws UsageError as find_overrides.
std::string replace_row(std::string_view text, const std::string& file, std::string_view processor,
                        int ranks, int cores, std::string_view overrides);

// The overrides that hold for this process: `variable` (DDP_SHM_TUNING's value; null: not set)
// itself, or those of the row that fits in the file after its @, or in `system_file`. Throws
// UsageError when the named file cannot be read, or the system's is there and cannot.
std::string overrides_for(const char* variable, const char* system_file, int ranks, int cores);

}  // namespace ddp::shm
