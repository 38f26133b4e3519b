// Finds the end of the launcher's part, as Python's argparse would: the first word that is neither
// an option nor an option's value.
#include "launcher/options/split_arguments.hpp"
#include "launcher/options/option_table.hpp"

#include <ddp/error.hpp>

namespace ddp::launcher {
namespace {

struct Word {
    const OptionSpec* spec;
    std::string shown;                      // the option as messages call it
    std::optional<std::string_view> value;  // that was part of the word
};

Word read_long(std::string_view token) {
    const std::size_t equals = token.find('=');
    const std::string_view name = token.substr(0, equals);
    const OptionSpec& spec = find_option(name, name.substr(2));
    Word word{&spec, std::string("--") + spec.name, {}};
    if (equals != token.npos) word.value = token.substr(equals + 1);
    return word;
}

// -r3, -r=3, -r 3; and mpirun's -np, the one word of two letters.
Word read_short(std::string_view token) {
    const std::string_view name = token.substr(0, token.find('='));
    const bool is_np = name == "-np";
    const OptionSpec* spec = is_np ? &find_option(name, "np") : find_letter(token[1]);
    if (spec == nullptr || (spec->is_flag() && name.size() > 2)) {
        find_option(token.substr(0, token.find('=')), "");  // says that it is unknown
    }
    Word word{spec, std::string("--") + spec->name, {}};
    std::string_view rest = token.substr(is_np ? 3 : 2);
    if (rest.starts_with('=')) {
        rest.remove_prefix(1);
        word.value = rest;
    } else if (!rest.empty()) {
        word.value = rest;
    }
    return word;
}

}  // namespace

SplitArguments split_arguments(std::span<char* const> arguments) {
    SplitArguments split;
    std::size_t next = 0;
    while (next < arguments.size()) {
        const std::string_view token = arguments[next];
        if (token == "--") {
            ++next;
            break;
        }
        if (token.size() < 2 || token.front() != '-') break;  // the program
        ++next;
        Word word = token[1] == '-' ? read_long(token) : read_short(token);
        if (word.spec->is_flag()) {
            if (word.value) {
                throw UsageError(word.shown + " takes no value, but has \"" +
                                 std::string(*word.value) + "\"");
            }
            split.options.push_back(word.shown);
            continue;
        }
        if (!word.value) {
            const bool missing =
                next == arguments.size() || std::string_view(arguments[next]).starts_with("--");
            if (missing) throw UsageError(word.shown + " needs a value: " + word.spec->value);
            word.value = arguments[next++];
        }
        if (word.value->empty()) {
            if (word.spec->may_be_empty()) continue;
            throw UsageError(word.shown + ": \"\" is no value; it needs " + word.spec->value);
        }
        split.options.push_back(word.shown + "=" + std::string(*word.value));
    }
    split.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
    return split;
}

}  // namespace ddp::launcher
