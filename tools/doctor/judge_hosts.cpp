#include <algorithm>
#include <cstdio>
#include <map>

#include "doctor/all_hosts.hpp"

namespace ddp::doctor {
namespace {

using std::chrono::nanoseconds;

// By this much logs cannot be put side by side any more; MUNGE refuses credentials of 300 s.
constexpr std::chrono::milliseconds much_apart{100};

std::string milliseconds_text(nanoseconds time) {
    char text[48];
    std::snprintf(text, sizeof text, "%.3g ms",
                  std::chrono::duration<double, std::milli>(time).count());
    return text;
}

std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

// What a host's looks of that name say, with how often: "8 x NVIDIA H200, ...".
std::string words_of(const HostFacts& host, const std::string& check) {
    std::vector<std::pair<std::string, int>> words;
    for (const Finding& one : host.findings) {
        if (one.check != check) continue;
        // How often a quota has stopped a cgroup is of each host alone.
        if (check == "processors" && !words.empty()) break;
        const auto known = std::ranges::find(words, one.says, &std::pair<std::string, int>::first);
        if (known != words.end()) {
            ++known->second;
        } else {
            words.emplace_back(one.says, 1);
        }
    }
    std::string text;
    for (const auto& [says, count] : words) {
        text +=
            (text.empty() ? "" : "; ") + (count > 1 ? std::to_string(count) + " x " : "") + says;
    }
    return text.empty() ? "nothing" : text;
}

struct Likeness {
    const char* check;
    Level level;  // where hosts differ
    const char* remedy;
};
constexpr Likeness likenesses[] = {
    {"libraries", Level::note, "jobs use the same ones everywhere: install what is missing"},
    {"NCCL", Level::warn, "all ranks of a job need the same NCCL"},
    {"driver", Level::note, "jobs run everywhere with what the oldest driver can do"},
    {"GPUs", Level::note, "the slowest decides how fast all are"},
    {"processors", Level::note, "the slowest decides how fast all are"},
};

Findings differences(std::span<const HostFacts> hosts) {
    Findings found;
    for (const Likeness& one : likenesses) {
        std::map<std::string, std::vector<std::string>> hosts_that_say;
        for (const HostFacts& host : hosts) {
            hosts_that_say[words_of(host, one.check)].push_back(host.host);
        }
        if (hosts_that_say.size() == 1) continue;
        std::string says = "not the same everywhere:";
        for (const auto& [words, names] : hosts_that_say) {
            says += (says.back() == ':' ? " " : "; ") + listed(names) + ": " + words;
        }
        found.push_back({one.check, one.level, says, one.remedy});
    }
    return found;
}

Finding judge_clocks(std::span<const HostFacts> hosts) {
    const auto [behind, ahead] = std::ranges::minmax_element(hosts, {}, &HostFacts::clock_ahead);
    const nanoseconds apart = ahead->clock_ahead - behind->clock_ahead;
    const nanoseconds error = (ahead->round_trip + behind->round_trip) / 2;  // half of each
    const std::string so_much =
        milliseconds_text(apart) + " (give or take " + milliseconds_text(error) + ")";
    if (apart - error < much_apart) return {"clocks", Level::ok, "at most " + so_much + " apart"};
    return {"clocks", Level::warn,
            ahead->host + "'s is " + so_much + " ahead of " + behind->host + "'s",
            "logs of both cannot be compared, and by more than 5 min MUNGE lets nobody in: chrony "
            "or systemd-timesyncd"};
}

Finding judge_network(std::span<const HostFacts> others) {
    const auto [near, far] = std::ranges::minmax_element(others, {}, &HostFacts::round_trip);
    std::string says = "there and back in " + milliseconds_text(near->round_trip);
    if (near != far) {
        says += " (" + near->host + ") to " + milliseconds_text(far->round_trip) + " (" +
                far->host + ")";
    }
    return {"network", Level::ok, says};
}

Finding judge_sum(const SumOfAll& sum, std::size_t ranks) {
    if (!sum.is_right) {
        return {"all ranks", Level::fail, "their sums are wrong",
                "a network card or memory that damages data: run it again on fewer hosts"};
    }
    // What each rank sends, and gets.
    const double bytes = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks) *
                         static_cast<double>(sum.bytes);
    const double seconds = std::chrono::duration<double>(sum.time).count();
    char rate[48];
    std::snprintf(rate, sizeof rate, "%.3g GB/s", seconds > 0 ? bytes / seconds / 1e9 : 0.0);
    return {"all ranks", Level::ok,
            "their sums are right: " + std::to_string(sum.bytes >> 20) + " MiB in " +
                milliseconds_text(sum.time) + " (each sends " + rate + ")"};
}

}  // namespace

Findings judge_hosts(std::span<const HostFacts> hosts, const SumOfAll& sum) {
    Findings found;
    std::vector<HostFacts> each;  // of two ranks on one, the first
    std::vector<std::string> names;
    for (const HostFacts& host : hosts) {
        if (std::ranges::find(names, host.host) != names.end()) continue;
        names.push_back(host.host);
        each.push_back(host);
        for (const Finding& one : host.findings) {
            if (one.level < Level::warn) continue;
            found.push_back({one.check, one.level, host.host + ": " + one.says, one.remedy});
        }
    }
    found.push_back(names.size() > 1
                        ? Finding{"hosts", Level::ok, listed(names)}
                        : Finding{"hosts", Level::note, "all ranks are on " + names.front(),
                                  "a rank on each: ddp-launch --hosts=... --nproc_per_node=1"});
    std::ranges::move(differences(each), std::back_inserter(found));
    found.push_back(judge_clocks(hosts));
    found.push_back(judge_network(hosts.subspan(1)));
    found.push_back(judge_sum(sum, hosts.size()));
    return found;
}

}  // namespace ddp::doctor
