// Numbers are added to names of signals, since people search for both.
#include "contract/exit_status.hpp"

#include "contract/exit_code.hpp"

#include <sys/wait.h>

#include <csignal>

namespace ddp::contract {
namespace {

struct SignalName {
    int signal;
    const char* name;
};
constexpr SignalName signal_names[] = {
    {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},  {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"},     {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},    {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"},     {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"},  {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"},     {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},  {SIGSTKFLT, "SIGSTKFLT"},
    {SIGCHLD, "SIGCHLD"},     {SIGCONT, "SIGCONT"}, {SIGSTOP, "SIGSTOP"},  {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"},     {SIGTTOU, "SIGTTOU"}, {SIGURG, "SIGURG"},    {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"},     {SIGPROF, "SIGPROF"}, {SIGPOLL, "SIGPOLL"},  {SIGPWR, "SIGPWR"},
    {SIGVTALRM, "SIGVTALRM"}, {SIGSYS, "SIGSYS"},   {SIGWINCH, "SIGWINCH"}};

}  // namespace

int ExitStatus::exit_code() const { return signal != 0 ? exit_signal_base + signal : code; }

ExitStatus exit_status_of(const siginfo_t& info) {
    if (info.si_code == CLD_EXITED) return {.code = info.si_status};
    return {.signal = info.si_status, .core_dumped = info.si_code == CLD_DUMPED};
}

// As glibc's sigabbrev_np(), which comes with 2.32.
std::string signal_name(int signal) {
    for (const auto& [number, name] : signal_names) {
        if (number == signal) return name;
    }
    return "signal " + std::to_string(signal);
}

std::string to_string(const ExitStatus& status) {
    if (status.signal == 0) return "exit code " + std::to_string(status.code);
    const std::string name = signal_name(status.signal);
    const std::string number = "signal " + std::to_string(status.signal);
    return (name == number ? name : name + " (" + number + ")") +
           (status.core_dumped ? ", core dumped" : "");
}

}  // namespace ddp::contract
