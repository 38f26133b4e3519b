// RepeatedErrors: what ends all ranks of a group is the same line of this library's from each of
// them ("ddp::UsageError: ..."). The console shows it once; the launcher's report says which ranks
// said it, and log files have all. Invariant: no other line is left out.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace ddp::launcher {

class RepeatedErrors {
public:
    // What of whole lines is to be shown. `continues`: the first is the rest of one that has been
    // shown in part.
    std::string without_repeated(std::string lines, bool continues);
    // Another attempt begins.
    void forget() { shown_.clear(); }

private:
    bool is_repeated(std::string_view line);

    std::set<std::string, std::less<>> shown_;
};

}  // namespace ddp::launcher
