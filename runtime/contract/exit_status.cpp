// Names of signals are the C library's; numbers are added, since people search for both.
#include "contract/exit_status.hpp"

#include "contract/exit_code.hpp"

#include <sys/wait.h>

#include <cstring>

namespace ddp::contract {

int ExitStatus::exit_code() const { return signal != 0 ? exit_signal_base + signal : code; }

ExitStatus exit_status_of(const siginfo_t& info) {
    if (info.si_code == CLD_EXITED) return {.code = info.si_status};
    return {.signal = info.si_status, .core_dumped = info.si_code == CLD_DUMPED};
}

std::string signal_name(int signal) {
    const char* name = ::sigabbrev_np(signal);
    return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::string to_string(const ExitStatus& status) {
    if (status.signal == 0) return "exit code " + std::to_string(status.code);
    const std::string name = signal_name(status.signal);
    const std::string number = "signal " + std::to_string(status.signal);
    return (name == number ? name : name + " (" + number + ")") +
           (status.core_dumped ? ", core dumped" : "");
}

}  // namespace ddp::contract
