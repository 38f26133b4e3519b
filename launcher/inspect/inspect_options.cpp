#include "launcher/inspect/inspect_options.hpp"

#include <array>
#include <cstddef>
#include <sstream>
#include <string>

namespace ddp::launcher {
namespace {

constexpr std::array options{
    InspectOption{"--json", nullptr, "the same for programs (docs/inspect.md)"},
    InspectOption{"--stacks", nullptr,
                  "also where each thread of its ranks is, for which they stand still for a "
                  "moment; of a job that has ended, what was read when it hung"},
    InspectOption{"--watch", "SECONDS", "again and again (each second), until the job has ended"},
    InspectOption{"--help", nullptr, "show the options of inspect"},
};

constexpr std::size_t width = 96;
constexpr std::size_t column = 23;

std::string word_of(const InspectOption& option) {
    return option.name + (option.value == nullptr ? "" : std::string("[=") + option.value + "]");
}

// Puts the words of `text` behind `line`, in lines that begin at the column.
std::string wrapped(std::string line, std::size_t begin, const char* text) {
    std::string all;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        if (line.size() > begin && line.size() + 1 + word.size() > width) {
            all += line + "\n";
            line.clear();
        }
        line.resize(line.size() > begin ? line.size() + 1 : begin, ' ');
        line += word;
    }
    return all + line + "\n";
}

}  // namespace

const char* const inspect_summary =
    "Shows the ranks of a job, and who holds it up: of the newest that runs on this host, else of "
    "the last that has ended. RUN: its run id, or its launcher's pid. Other users' jobs: as root.";

std::span<const InspectOption> inspect_options() { return options; }

std::string inspect_help() {
    std::string text = "usage: ddp-launch inspect [RUN]";
    for (const InspectOption& option : options) text += " [" + word_of(option) + "]";
    text += "\n\n" + wrapped("", 0, inspect_summary);
    for (const InspectOption& option : options) {
        text += wrapped("  " + word_of(option), column, option.description);
    }
    return text + "A program that is called inspect is started as ./inspect.\n";
}

}  // namespace ddp::launcher
