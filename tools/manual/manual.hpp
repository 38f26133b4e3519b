// What shells and `man` know of ddp-launch, made from its tables of options when it is built, so
// that they cannot tell of others than there are. Options that are refused are in none.
#pragma once

#include "launcher/options/option_table.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::manual {

// What completes an option's value.
struct ValueWords {
    enum class Kind { flag, anything, choice, file, folder, command, host };
    Kind kind;
    std::vector<std::string> choices{};  // of choice; where others are possible, too
};
ValueWords words_of(const launcher::OptionSpec& option);

// In the table's order.
std::vector<const launcher::OptionSpec*> offered_options();

// `text` with each of `characters` behind `escape`.
std::string escaped(std::string_view text, std::string_view characters, std::string_view escape);

// As one word of a shell.
std::string quoted(const std::string& text);

std::string joined(const std::vector<std::string>& words, const char* between);

// `text`, a raw string that begins with an empty line, with these parts wherever their marks are. A
// mark that is a line of its own may be several lines.
std::string filled(std::string_view text, const std::map<std::string, std::string>& parts);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();
// ddp-launch.1. `date`: "2026-11-30". Throws Error for another.
std::string man_page(const std::string& date);

}  // namespace ddp::manual
