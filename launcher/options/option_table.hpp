// The one table of options. Splitting, parsing, --help, --print-config and the test that reads
// docs/launcher.md all go through it, so that an option is added in one place.
#pragma once

#include "launcher/options/options.hpp"

#include <span>
#include <string>
#include <string_view>

namespace ddp::launcher {

enum class OptionGroup { job, hosts, program, restarts, logs, debugging, torchrun, other };
inline constexpr OptionGroup last_group = OptionGroup::other;

// How an option stands to torchrun's of the same name; docs/launcher.md uses these words.
enum class TorchrunCompat {
    own,       // torchrun has none
    same,      // means what it means there
    better,    // the same command line works, and more
    later,     // refused, or taken only as far as one host needs it
    declined,  // refused for a reason: "why not"
};

// A value on its way into Options, and what an error message calls the place it was found:
// "--nproc-per-node" or "$PET_NPROC_PER_NODE".
struct GivenValue {
    std::string_view label;
    const std::string& text;
};

struct OptionSpec {
    const char* name;      // in dashes
    const char* alias;     // a second one, or ""
    const char* letter;    // of the short form, or ""
    const char* value;     // as the help has it: "N|gpu", CAPITALS for what varies; null: a flag
    const char* initial;   // the default as --print-config shows it
    const char* variable;  // gives a default, beside PET_<NAME>; or ""
    OptionGroup group;
    TorchrunCompat compat;
    const char* description;                     // for a refused one: why
    void (*apply)(Options&, const GivenValue&);  // null: refused. The value of a flag is "1" or "0"

    bool is_flag() const { return value == nullptr; }
    // Given several times all count, and not the last alone.
    bool adds_up() const;
    // "PET_NPROC_PER_NODE"; empty for options that torchrun lacks.
    std::string pet_variable() const;
    // Torchrun takes "" for these: as if not given.
    bool may_be_empty() const { return !is_flag() && *initial == '\0'; }
};

std::span<const OptionSpec> option_table();

const char* title_of(OptionGroup group);

// By its full name or alias, or by an unambiguous beginning; dashes and underscores are the same.
// `token` is what the user wrote, for the message of the UsageError.
const OptionSpec& find_option(std::string_view token, std::string_view name);

// By its letter; null when there is none.
const OptionSpec* find_letter(char letter);

}  // namespace ddp::launcher
