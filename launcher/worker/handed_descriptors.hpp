// What of the launcher's own stdin, stdout and stderr goes to a worker as it is. --stdin=RANK gives
// that rank of the job the launcher's input, pipe or terminal, and a single worker gets it without
// being asked; a terminal only while the launcher is in its foreground. A job of one worker, with
// no option that changes where its output goes, keeps each output that is a terminal, too: a
// prompt, a progress bar or a debugger works as without the launcher. Only job control does not:
// the worker is not in the terminal's session, so that Ctrl-C goes to the launcher, which forwards
// it.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/options/options.hpp"
#include "launcher/worker/worker_process.hpp"

#include <termios.h>

#include <optional>

namespace ddp::launcher {

struct HandedDescriptors {
    std::optional<int> in_for;  // the job's rank that gets the input; nothing: this host's first
    base::UniqueFd in;          // empty: /dev/null
    bool in_for_all = false;    // the agent reads it, and passes copies on (input_relay.hpp)
    base::UniqueFd out;         // empty: a pipe of ours
    base::UniqueFd err;

    // What a worker starts with, ready for start_worker().
    ChildDescriptors for_worker(int local_rank, int rank, int null, int inherited) const;
};

// In the front, which alone has them. Throws SystemError.
HandedDescriptors hand_descriptors(const Options& options, int workers);

// Puts a terminal's modes (echo, line editing) back when it goes: a killed worker cannot.
class TerminalModes {
public:
    explicit TerminalModes(int fd);  // -1 or no terminal: nothing to do
    ~TerminalModes();
    TerminalModes(const TerminalModes&) = delete;
    TerminalModes& operator=(const TerminalModes&) = delete;

private:
    std::optional<termios> before_;
};

}  // namespace ddp::launcher
