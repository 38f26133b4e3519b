// The error file: how a failing worker tells the launcher why, in the JSON that torch's @record
// writes:
// {"message": {"message": "TypeError: text", "extraInfo": {"py_callstack": "...", "timestamp":
// "1700000000"}}} ddp adds, inside extraInfo, "peer": the rank that a PeerError blames. Named by
// TORCHELASTIC_ERROR_FILE.
#pragma once

#include <exception>
#include <optional>
#include <string>

namespace ddp::contract {

struct ErrorReport {
    std::string message;      // one line or more; never empty
    std::optional<int> peer;  // the rank that this one left because of
};

// What to say about an exception: its type's name for ddp's own errors and its text.
ErrorReport describe(std::exception_ptr error);

// Writes the file that TORCHELASTIC_ERROR_FILE names, whole (temporary file + rename); does nothing
// when the variable is unset or empty, and never throws: an error on the way to report an error is
// dropped.
void write_error_file(const ErrorReport& report) noexcept;

// Reads a worker's error file, ours or torch's (also its form {"message": "text"}). Nothing when
// there is none or it is damaged. At most 1 MiB is believed.
std::optional<ErrorReport> read_error_file(const std::string& path);

// Installs, once a process, a terminate handler that writes the pending exception to the error file
// and then calls the handler that was there before.
void install_terminate_handler();

}  // namespace ddp::contract
