#include "launcher/verdict/network_loss.hpp"

#include "base/process/process_tree.hpp"
#include "launcher/report/failure_report.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

namespace ddp::launcher {
namespace {

// Of two lines that begin with "Tcp:", names and numbers, the number of that name.
std::optional<std::uint64_t> number_of(const std::string& name, const std::string& names,
                                       const std::string& numbers) {
    std::istringstream all_names(names);
    std::istringstream all_numbers(numbers);
    std::string one;
    std::string number;
    while (all_names >> one && all_numbers >> number) {
        if (one != name) continue;
        std::istringstream text(number);
        std::uint64_t value = 0;
        if (text >> value) return value;
        return std::nullopt;
    }
    return std::nullopt;
}

// "3.1 %"
std::string in_percent(double share) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
    return text;
}

}  // namespace

std::optional<TcpCounts> look_at_tcp(pid_t pid) {
    constexpr std::size_t most_bytes = 8192;
    std::istringstream file(
        base::read_small_file("/proc/" + std::to_string(pid) + "/net/snmp", most_bytes));
    std::string names;
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("Tcp:")) continue;
        if (names.empty()) {
            names = line;
            continue;
        }
        const auto sent = number_of("OutSegs", names, line);
        const auto again = number_of("RetransSegs", names, line);
        if (!sent || !again) return std::nullopt;
        return TcpCounts{*sent, *again, std::chrono::steady_clock::now().time_since_epoch()};
    }
    return std::nullopt;
}

std::optional<std::string> LossNews::consider(std::uint64_t key, const std::string& name,
                                              Duration time, const TcpCounts& counts) {
    constexpr Duration longest = std::chrono::hours{1};  // hosts may tell anything
    time = std::clamp(time, Duration(0), longest);
    Course& course = courses_[key];
    const std::optional<TcpCounts> last = std::exchange(course.last, counts);
    if (!last || counts.sent < last->sent || counts.sent_again < last->sent_again) return {};
    // Between the two ranks have loaded or saved something, or another stretch was not told.
    const bool has_gap = counts.read < last->read || counts.read - last->read > 2 * time;
    if (has_gap) return std::nullopt;
    // OutSegs leaves out what was sent again.
    const TcpCounts now{counts.sent - last->sent, counts.sent_again - last->sent_again};
    const auto all = static_cast<double>(now.sent) + static_cast<double>(now.sent_again);
    const double share = all > 0 ? static_cast<double>(now.sent_again) / all : 0;
    course.fine_in_a_row = share < little ? course.fine_in_a_row + 1 : 0;
    if (share < much || now.sent_again < least) {
        course.lossy_in_a_row = 0;
        course.in_a_row = {};
        course.time = {};
    } else if (!course.is_said) {
        ++course.lossy_in_a_row;
        course.in_a_row.sent += now.sent;
        course.in_a_row.sent_again += now.sent_again;
        course.time += time;
    }
    if (course.is_said && course.fine_in_a_row >= stretches_until_said) {
        course.is_said = false;
        return "host " + name + " sends hardly any TCP segments again any more";
    }
    if (course.is_said || course.lossy_in_a_row < stretches_until_said) return std::nullopt;
    course.is_said = true;
    const TcpCounts& said = course.in_a_row;
    const double sent = static_cast<double>(said.sent) + static_cast<double>(said.sent_again);
    std::string text =
        "host " + name + " sends " + in_percent(static_cast<double>(said.sent_again) / sent) +
        " of its TCP segments again (" + std::to_string(said.sent_again) + " in the last " +
        describe_time(std::chrono::duration_cast<std::chrono::milliseconds>(course.time)) +
        "): packets get lost on its network or on that of those they go to, and ranks may wait "
        "for them";
    course.lossy_in_a_row = 0;
    course.in_a_row = {};
    course.time = {};
    return text;
}

}  // namespace ddp::launcher
