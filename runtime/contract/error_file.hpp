// The error file: how a failing worker tells the launcher why, in the JSON that torch's @record
// writes:
// {"message": {"message": "TypeError: text", "extraInfo": {"py_callstack": "...", "timestamp":
// "1700000000"}}} ddp adds, inside extraInfo, "peer": the other rank that an Error's culprit() is.
// Named by TORCHELASTIC_ERROR_FILE.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace ddp::contract {

struct ErrorReport {
    std::string message;                         // one line or more; never empty
    std::optional<int> peer = {};                // the rank that this one left because of
    std::string callstack = {};                  // a Python worker's, with newlines; may be empty
    std::optional<std::int64_t> timestamp = {};  // seconds since 1970; of the write when not set
};

// What to say about an exception: its type's name for ddp's own errors and its text.
ErrorReport describe(std::exception_ptr error);

// The message on stderr, after what stands in stdout's buffer; and the exit code for it.
int report_and_choose_exit_code(const ErrorReport& report) noexcept;

// Writes the file that TORCHELASTIC_ERROR_FILE names, whole (temporary file + rename); does nothing
// when the variable is unset or empty, and never throws: an error on the way to report an error is
// dropped.
void write_error_file(const ErrorReport& report) noexcept;

// Reads a worker's error file, ours or torch's (also its form {"message": "text", "timestamp":
// 10}, and messages inside messages). Nothing when there is none or it is damaged. The worker may
// have written anything: at most 1 MiB, 32 levels and 20,000 values are believed.
std::optional<ErrorReport> read_error_file(const std::string& path);

// Its bytes, if it is a regular file of at most 1 MiB.
std::optional<std::string> read_error_file_text(const std::string& path);

// As torch's agent does with the root cause's file when it has one of its own to write: the content
// of `from` goes to `to`, with "errorCode" (an exit code, or minus a signal) beside the message;
// what was in `to` is replaced. Without a readable `from` it is made from `otherwise`. Returns 0 or
// an errno.
int copy_error_file(const std::string& from, const std::string& to, int error_code,
                    const ErrorReport& otherwise);

// Installs, once a process, a terminate handler that writes the pending exception to the error file
// and then calls the handler that was there before. With DDP_BREAK_ON_FAILURE=1 it holds the
// process for a debugger in between (break_on_failure.hpp).
void install_terminate_handler();

// From now on an exception that names a peer and that nobody catches on this thread does not abort
// the process: the handler says it and ends it with exit code 82, as run_worker would. Whether an
// exception names a peer cannot be told without catching it, which loses the stack of one that does
// not.
void leave_because_of_peer() noexcept;

}  // namespace ddp::contract
