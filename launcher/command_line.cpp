// What ddp-launch does before there is a job. Its one line on stderr is written here, by hand: no
// logger, no prefix but the program's name.
#include "launcher/command_line.hpp"

#include "contract/exit_code.hpp"
#include "launcher/front.hpp"
#include "launcher/options.hpp"
#include "launcher/program_path.hpp"

#include <ddp/error.hpp>
#include <ddp/version.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace ddp::launcher {
namespace {

std::optional<std::string> from_environment(std::string_view name) {
    const char* value = std::getenv(std::string(name).c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

int complain(const std::string& message, int exit_code) {
    const std::string line = "ddp-launch: " + message + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
    return exit_code;
}

int print(const std::string& text) {
    const bool written =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    return written ? contract::exit_ok : contract::exit_error;
}

// Whoever starts us with 0, 1 or 2 closed must not find a pipe of ours there.
void open_missing_standard_descriptors() {
    for (;;) {
        const int fd = ::open("/dev/null", O_RDWR);
        if (fd < 0) return;
        if (fd > STDERR_FILENO) {
            ::close(fd);
            return;
        }
    }
}

int run_job(const Options& options) {
    const Program program =
        find_program(options.command.front(), from_environment("PATH").value_or("/usr/bin:/bin"));
    if (!program.problem.empty()) return complain(program.problem, program.exit_code);
    return run_front(options, program.path);
}

}  // namespace

int run_command_line(std::span<char* const> arguments) {
    open_missing_standard_descriptors();
    try {
        const Options options = parse_options(arguments, from_environment);
        switch (options.action) {
            case Action::help:
                return print(help_text());
            case Action::version:
                return print(std::string("ddp-launch ") + version() + "\n");
            case Action::run:
            case Action::dry_run:
            case Action::print_config:
                return run_job(options);
        }
    } catch (const UsageError& error) {
        return complain(error.what(), contract::exit_usage);
    } catch (const std::exception& error) {
        return complain(error.what(), contract::exit_error);
    }
    return contract::exit_error;
}

}  // namespace ddp::launcher
