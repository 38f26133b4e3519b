// ddp-launch: starts one worker process per GPU or CPU slot and keeps them honest.
// Everything is in run_command_line, so that tests can link it; this file has only main.
#include "launcher/command_line.hpp"

#include <cstddef>

int main(int argc, char** argv) {
    const std::size_t count = argc > 0 ? static_cast<std::size_t>(argc) - 1 : 0;
    return ddp::launcher::run_command_line({argv + (argc > 0 ? 1 : 0), count});
}
