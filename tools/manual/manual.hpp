// What shells and `man` know of ddp-launch, made from its tables of options when it is built, so
// that they cannot tell of others than there are. Options that are refused are in none.
#pragma once

#include "launcher/options/option_table.hpp"

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

// May be given more than once.
bool is_repeatable(const launcher::OptionSpec& option);

// `text` with each of `characters` behind `escape`.
std::string escaped(std::string_view text, std::string_view characters, std::string_view escape);

// As one word of a shell.
std::string quoted(const std::string& text);

std::string joined(const std::vector<std::string>& words, const char* between);

// The lines of `text`, a raw string that begins with an empty one, with `part` in place of the line
// that is `mark` alone.
std::string with_part(std::string_view text, std::string_view mark, std::string_view part);

// Puts `part` where `mark` is first.
void replace(std::string& whole, std::string_view mark, std::string_view part);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();
// ddp-launch.1. `date`: "2026-11-30". Throws Error for another.
std::string man_page(const std::string& date);

}  // namespace ddp::manual
