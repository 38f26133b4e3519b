#include "launcher/verdict/verdict_text.hpp"

#include "launcher/report/failure_report.hpp"

#include <algorithm>
#include <cmath>

namespace ddp::launcher {
namespace {

constexpr std::size_t most_lines = 8;

// The verb begins it.
std::string what_it_does(const RankState& rank) {
    const ProcessState& process = rank.process;
    if (rank.has_ended) return " has ended";
    if (process.tracer != 0 && process.is_held()) {
        return " is held by a debugger (pid " + std::to_string(process.tracer) + ")";
    }
    if (process.is_frozen) return " is frozen, with its cgroup";
    if (process.state == 'T') return " is stopped (SIGSTOP)";
    const std::string where = process.waits_in.empty() ? "" : " in " + process.waits_in;
    if (process.state == 'D') return " waits for a device or a file system (state D)" + where;
    if (process.state == 'Z') return " has ended";
    if (rank.record.is_at_checkpoint) return " is at a checkpoint" + where;
    if (process.state == 0) return "";
    constexpr double busy = 0.5;
    const bool computes = rank.cpu_share ? *rank.cpu_share >= busy : process.state == 'R';
    return computes ? " computes" : " sleeps" + where;
}

const contract::OperationRecord* last_ended(const RankState& rank) {
    const contract::OperationRecord* last = nullptr;
    for (const contract::OperationRecord& operation : rank.record.operations) {
        if (operation.ended && (last == nullptr || *operation.ended >= *last->ended)) {
            last = &operation;
        }
    }
    return last;
}

std::string last_call(const RankState& rank, Verdict::Time now) {
    const contract::OperationRecord* const last = last_ended(rank);
    if (last == nullptr) return rank.record.pid != 0 ? "; it has called no collective yet" : "";
    return "; its last call, " + contract::describe(*last) + ", ended " +
           time_since(*last->ended, now) + " ago";
}

std::string begin_of_line(const RankState& rank) {
    const pid_t pid = rank.process.pid != 0 ? rank.process.pid : rank.record.pid;
    return launcher::begin_of_line(rank.rank, rank.host, pid);
}

}  // namespace

std::string begin_of_line(int rank, const std::string& host, pid_t pid) {
    std::string place = host;
    if (pid != 0) place += (place.empty() ? "pid " : ", pid ") + std::to_string(pid);
    return "\n  rank " + std::to_string(rank) + (place.empty() ? "" : " (" + place + ")");
}

std::string last_call_of(const contract::ControlPage& page) {
    const contract::RankRecord record = contract::read_page(page);
    const auto call = record.last_call();
    return call ? contract::describe(*call) : "";
}

std::string percent(double share) { return std::to_string(std::lround(share * 100)) + " %"; }

std::string time_since(Verdict::Time since, Verdict::Time now) {
    return describe_time(
        std::chrono::duration_cast<std::chrono::milliseconds>(std::max(now - since, {})));
}

std::string name_ranks(const std::vector<int>& ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + list_ranks(ranks);
}

std::string who_holds_up_whom(const std::vector<int>& ranks, const std::vector<int>& waiting) {
    return name_ranks(ranks) + (ranks.size() == 1 ? " holds up " : " hold up ") +
           name_ranks(waiting);
}

std::string what_they_do(const RankStates& ranks, Verdict::Time now) {
    std::string text;
    for (std::size_t i = 0; i < ranks.size() && i < most_lines; ++i) {
        text += begin_of_line(*ranks[i]) + what_it_does(*ranks[i]) + last_call(*ranks[i], now);
    }
    if (ranks.size() > most_lines) text += "\n  ...";
    return text;
}

std::string what_helps(std::span<const RankState> ranks, const std::vector<int>& to_blame) {
    std::string text;
    std::size_t lines = 0;
    for (const RankState& rank : ranks) {
        const ProcessState& process = rank.process;
        const bool is_stopped = process.state == 'T' && process.tracer == 0 && !process.is_frozen;
        const bool is_to_blame = std::ranges::binary_search(to_blame, rank.rank);
        if (rank.has_ended || !is_stopped || !is_to_blame || ++lines > most_lines) continue;
        const std::string there = rank.host.empty() ? "" : " on " + rank.host;
        text += "\n  kill -CONT " + std::to_string(process.pid) + there + " lets rank " +
                std::to_string(rank.rank) + " go on";
    }
    return text;
}

std::string where_they_are(const RankStates& ranks) {
    std::string text;
    for (std::size_t i = 0; i < ranks.size() && i < most_lines; ++i) {
        for (const contract::GroupRecord& group : ranks[i]->record.groups) {
            if (group.transfer) {
                text += begin_of_line(*ranks[i]) + " is in " + contract::describe(*group.transfer);
            }
            const auto* const operation =
                group.is_waiting() ? ranks[i]->record.find_operation(group.id, group.waits_in())
                                   : nullptr;
            if (operation == nullptr) continue;
            text += begin_of_line(*ranks[i]) + " is in " + contract::describe(*operation) +
                    " of a group of " + std::to_string(group.size);
        }
    }
    if (ranks.size() > most_lines) text += "\n  ...";
    return text;
}

}  // namespace ddp::launcher
