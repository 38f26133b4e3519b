// ddp-manual bash|zsh|fish|man FILE [DATE]: writes what that shell, or `man`, knows of ddp-launch.
// ddp-manual help FILE DATE PROGRAM SUMMARY: the page of another program, from what its --help
// prints. The build runs it; it is not installed.
#include "manual/manual.hpp"
#include "manual/mdoc.hpp"

#include <ddp/error.hpp>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>

namespace {

std::string help_of(const std::string& program) {
    const std::string command = "'" + program + "' --help";
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(::popen(command.c_str(), "r"),
                                                                 ::pclose);
    if (!output) throw ddp::Error("cannot run " + program);
    std::string text;
    for (int c = std::fgetc(output.get()); c != EOF; c = std::fgetc(output.get())) {
        text += static_cast<char>(c);
    }
    return text;
}

std::string made(std::span<char* const> words) {
    const std::string what = words[1];
    const std::string date = words.size() > 3 ? words[3] : "";
    if (what == "help" && words.size() == 6) {
        const std::string program = words[4];
        return ddp::manual::help_page(program.substr(program.rfind('/') + 1), words[5],
                                      help_of(program), date);
    }
    if (what == "bash") return ddp::manual::bash_completion();
    if (what == "zsh") return ddp::manual::zsh_completion();
    if (what == "fish") return ddp::manual::fish_completion();
    if (what == "man") return ddp::manual::man_page(date);
    throw ddp::UsageError("\"" + what + "\" is not known; write bash, zsh, fish, man or help");
}

}  // namespace

int main(int argc, char** argv) try {
    const std::span words(argv, static_cast<std::size_t>(argc));
    if (words.size() < 3) {
        throw ddp::UsageError("usage: ddp-manual bash|zsh|fish|man FILE [DATE]");
    }
    const std::string text = made(words);
    std::ofstream file(words[2]);
    file << text << std::flush;
    if (!file) throw ddp::Error(std::string("cannot write ") + words[2]);
    return 0;
} catch (const std::exception& error) {
    std::cerr << "ddp-manual: " << error.what() << "\n";
    return 1;
}
