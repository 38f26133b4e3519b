// A terminal for a test: what a program writes to `theirs` can be read here.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/worker/worker_terminal.hpp"

#include <termios.h>
#include <unistd.h>

#include <array>
#include <string>

namespace ddp::launcher::testing {

class PseudoTerminal {
public:
    explicit PseudoTerminal(unsigned short columns = 80)
        : ends_(make_worker_terminal(
              {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0})) {}

    int theirs() const { return ends_.workers.get(); }
    void hang_up() { ends_.ours.reset(); }
    // What can be read now, added to all that was read before.
    const std::string& read() {
        std::array<char, 65536> bytes;
        for (;;) {
            const ssize_t got = ::read(ends_.ours.get(), bytes.data(), bytes.size());
            if (got <= 0) return text_;
            text_.append(bytes.data(), static_cast<std::size_t>(got));
        }
    }

private:
    WorkerTerminal ends_;
    std::string text_;
};

// What a terminal shows in the end of text with newlines, carriage returns, cursor-up and
// clear-to-end sequences; colours are left out. Lines without the spaces at their ends.
std::string screen_of(const std::string& text);

}  // namespace ddp::launcher::testing
