// ddp-launch: starts one worker process per GPU or CPU slot and keeps them honest.
// Everything is in run_command_line, so that tests can link it; this file has only main.
#include "launcher/front/command_line.hpp"

#include <cstddef>

int main(int argc, char** argv) {
    const std::size_t own = argc > 0 ? 1 : 0;
    const std::size_t count = static_cast<std::size_t>(argc) - own;
    return ddp::launcher::run_command_line(own > 0 ? argv[0] : "", {argv + own, count});
}
