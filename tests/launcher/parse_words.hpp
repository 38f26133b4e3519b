// What reading a command line comes to, for tests: words and variables as values, errors as text.
#pragma once

#include "launcher/hosts/start/hosts_job.hpp"
#include "launcher/options/options.hpp"

#include <ddp/error.hpp>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher::testing {

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string, std::less<>>;

inline std::vector<char*> pointers_to(Words& words) {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    return pointers;
}

inline EnvLookup lookup_in(const Environment& environment) {
    return [&environment](std::string_view name) {
        const auto found = environment.find(name);
        return found != environment.end() ? std::optional(found->second) : std::nullopt;
    };
}

// As ddp-launch reads it before it plans: with the hosts settled.
inline Options parse(Words words, const Environment& environment = {}) {
    Options options = parse_options(pointers_to(words), lookup_in(environment));
    const bool starts = options.action == Action::run || options.action == Action::dry_run;
    if (starts) settle_hosts(options, lookup_in(environment));
    return options;
}

inline std::string error_of(const Words& words, const Environment& environment = {}) {
    try {
        parse(words, environment);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace ddp::launcher::testing
