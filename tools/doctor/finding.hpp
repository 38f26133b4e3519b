// What a look at this host has found, and how findings are shown.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::doctor {

enum class Level : std::uint8_t {
    ok,
    note,  // worth knowing; most jobs need nothing of it
    warn,  // some jobs run worse for it, or fail
    fail,  // jobs will fail
};
const char* to_string(Level level);

struct Finding {
    std::string check;  // which look: "processors"
    Level level = Level::ok;
    std::string says;
    std::string remedy = {};  // what to do; empty where nothing is to be done
};

bool is_fit(std::span<const Finding> findings);  // none is a failure

// A line a finding, its remedy below it, and a last line that sums up, in these words when none is
// a failure.
std::string as_text(std::span<const Finding> findings,
                    const std::string& when_fit = "this host is fit");
// {"fit": true, "findings": [{"check": ..., "level": ..., "says": ..., "remedy": ...}]}, and a
// newline.
std::string as_json(std::span<const Finding> findings);

}  // namespace ddp::doctor
