// ddp-manual bash|zsh|fish|man FILE [DATE]: writes what that shell, or `man`, knows of ddp-launch.
// The build runs it; it is not installed.
#include "manual/manual.hpp"

#include <ddp/error.hpp>

#include <exception>
#include <fstream>
#include <iostream>
#include <span>
#include <string>

namespace {

std::string made(const std::string& what, const std::string& date) {
    if (what == "bash") return ddp::manual::bash_completion();
    if (what == "zsh") return ddp::manual::zsh_completion();
    if (what == "fish") return ddp::manual::fish_completion();
    if (what == "man") return ddp::manual::man_page(date);
    throw ddp::UsageError("\"" + what + "\" is not known; write bash, zsh, fish or man");
}

}  // namespace

int main(int argc, char** argv) try {
    const std::span words(argv, static_cast<std::size_t>(argc));
    if (words.size() < 3) {
        throw ddp::UsageError("usage: ddp-manual bash|zsh|fish|man FILE [DATE]");
    }
    const std::string text = made(words[1], words.size() > 3 ? words[3] : "");
    std::ofstream file(words[2]);
    file << text << std::flush;
    if (!file) throw ddp::Error(std::string("cannot write ") + words[2]);
    return 0;
} catch (const std::exception& error) {
    std::cerr << "ddp-manual: " << error.what() << "\n";
    return 1;
}
