// How a process ended, as a value: an exit code or a signal. A worker's death is data to whoever
// launched it, so this is what travels through the launcher to the report and the exit code.
#pragma once

#include <csignal>
#include <string>

namespace ddp::contract {

struct ExitStatus {
    int code = 0;    // when signal is 0
    int signal = 0;  // that ended it
    bool core_dumped = false;

    bool ok() const { return code == 0 && signal == 0; }
    // As shells say it: the code, or 128 + the signal.
    int exit_code() const;
    bool operator==(const ExitStatus&) const = default;
};

// From what waitid() filled in.
ExitStatus exit_status_of(const siginfo_t& info);

// "exit code 7", "SIGSEGV (signal 11), core dumped".
std::string to_string(const ExitStatus& status);

// "SIGTERM"; "signal 40" for one without a name.
std::string signal_name(int signal);

}  // namespace ddp::contract
