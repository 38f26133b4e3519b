// The options of `ddp-launch inspect`; its help, its manual and the shells' completion are made
// from them.
#pragma once

#include <span>
#include <string>

namespace ddp::launcher {

struct InspectOption {
    const char* name;   // "--json"
    const char* value;  // what the help calls its value, which may be left out; null: it has none
    const char* description;
};

std::span<const InspectOption> inspect_options();

// What `ddp-launch inspect` does, as a paragraph.
extern const char* const inspect_summary;

std::string inspect_help();

}  // namespace ddp::launcher
