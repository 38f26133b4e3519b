#include "launcher/verdict/stack_judge.hpp"

#include "base/process/process_tree.hpp"
#include "launcher/verdict/verdict_text.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::chrono::minutes most_pause{10};
constexpr std::string_view own_calls = "(distributed_c10d.py:";

// In whatever thread: the one that calls may be another's that the program's waits for.
bool is_within_collective(std::string_view frame) {
    constexpr std::array<std::string_view, 9> beginnings{
        "c10d::ProcessGroupGloo::AsyncWork::execute",
        "c10d::ProcessGroupMPI::",
        "c10d::ProcessGroupNCCL::WorkNCCL::",
        "c10d::Work::wait",
        "gloo::barrier",
        "gloo::allreduce",
        "gloo::transport::",
        "MPI_",
        "PMPI_"};
    // Of the thread that waits for connections all the time.
    if (frame.starts_with("gloo::transport::tcp::Loop::")) return false;
    return std::ranges::any_of(
        beginnings, [&](std::string_view beginning) { return frame.starts_with(beginning); });
}

std::string_view function_in(std::string_view frame) { return frame.substr(0, frame.find(" (")); }

// "train.py:9" of "step (train.py:9)"
std::string place_in(std::string_view frame) {
    const auto begin = frame.rfind('(');
    if (begin == frame.npos || !frame.ends_with(')')) return "";
    return std::string(frame.substr(begin + 1, frame.size() - begin - 2));
}

const ThreadStack* first_python(const RankStacks& stacks) {
    const auto main = std::ranges::find(stacks.python, stacks.pid, &ThreadStack::tid);
    return main != stacks.python.end() ? &*main : nullptr;
}

// " within Tensor.backward", what the program's own code has called.
std::string within(const ThreadStack* python) {
    if (python == nullptr) return "";
    const auto own = std::ranges::find(python->frames, python->own_frame);
    if (own == python->frames.end() || own == python->frames.begin()) return "";
    return " within " + std::string(function_in(*std::prev(own)));
}

// "\n  rank 1 (pid 4711) sleeps in read of /data/part-7, in load (train.py:5)"
std::string line_of(const RankStacks& stacks, const ProcessState& state) {
    std::string text = begin_of_line(stacks.rank, "", stacks.pid);
    if (state.is_frozen) {
        text += " is frozen, with its cgroup";
    } else if (state.state == 'T') {
        text += " is stopped (SIGSTOP)";
    } else if (state.state == 'S' || state.state == 'D') {
        text += " sleeps" + (state.waits_in.empty() ? "" : " in " + state.waits_in);
    } else {
        text += " computes";
    }
    const ThreadStack* const python = first_python(stacks);
    if (python != nullptr && !python->own_frame.empty()) text += ", in " + python->own_frame;
    return text;
}

}  // namespace

std::string StackCall::words() const { return place.empty() ? name : name + " (" + place + ")"; }

std::optional<StackCall> call_of(const RankStacks& stacks) {
    const ThreadStack* const python = first_python(stacks);
    const std::string place = python != nullptr ? place_in(python->own_frame) : "";
    if (python != nullptr) {
        // The outermost of those is what the program has called.
        const auto call = std::find_if(
            python->frames.rbegin(), python->frames.rend(),
            [](const std::string& frame) { return frame.find(own_calls) != frame.npos; });
        if (call != python->frames.rend()) {
            return StackCall{.name = std::string(function_in(*call)), .place = place};
        }
    }
    for (const ThreadStack& thread : stacks.native) {
        const auto call = std::ranges::find_if(thread.frames, is_within_collective);
        if (call == thread.frames.end()) continue;
        const std::string_view function = function_in(*call);
        const bool is_mpi = function.starts_with("MPI_") || function.starts_with("PMPI_");
        return StackCall{.name = is_mpi ? std::string(function) : "a collective" + within(python),
                         .place = place};
    }
    return std::nullopt;
}

bool has_known_collectives(pid_t pid) {
    constexpr std::array<std::string_view, 4> libraries{"/libtorch", "/libgloo", "/libmpi",
                                                        "/libnccl"};
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) {
        const auto has = [&](std::string_view name) { return line.find(name) != line.npos; };
        if (std::ranges::any_of(libraries, has)) return true;
    }
    return false;
}

std::optional<StackJudge::FirstThread> StackJudge::first_thread_of(int rank, pid_t pid) {
    const std::string process = "/proc/" + std::to_string(pid);
    const std::string status = base::read_small_file(process + "/status", 8192);
    const auto voluntary = base::number_behind("\nvoluntary_ctxt_switches:", status);
    const auto others = base::number_behind("\nnonvoluntary_ctxt_switches:", status);
    const auto cpu = base::number_behind("", base::read_small_file(process + "/schedstat"));
    if (!voluntary || !others || !cpu) return std::nullopt;
    return FirstThread{
        .rank = rank, .switches = *voluntary + *others, .cpu = std::chrono::nanoseconds(*cpu)};
}

bool StackJudge::is_still(int rank, Time now) const {
    const auto found = seen_.find(rank);
    return found != seen_.end() && now - found->second.since >= patience_;
}

// A user who reads its stacks, too, makes it run: each time four times, for 0.1 ms together.
bool StackJudge::goes_on(const FirstThread& thread) const {
    constexpr std::uint64_t of_readers = 12;
    constexpr std::chrono::milliseconds little{1};
    const auto found = at_verdict_.find(thread.rank);
    return found != at_verdict_.end() && thread.switches - found->second.switches > of_readers &&
           thread.cpu - found->second.cpu > little;
}

// It went on by itself: such a wait is no news in this job any more.
void StackJudge::forget_verdict(Time now) {
    patience_ = std::max(patience_, 2 * (now - verdict_->since));
    pause_ = patience_;
    next_reading_ = now;
    verdict_.reset();
    at_verdict_.clear();
}

bool StackJudge::is_time_to_read(Time now, std::span<const FirstThread> threads) {
    bool any_is_still = false;
    bool any_goes_on = false;
    for (const FirstThread& thread : threads) {
        Seen& seen = seen_.try_emplace(thread.rank, Seen{thread, now}).first->second;
        if (seen.thread.switches != thread.switches) seen = {thread, now};
        any_is_still = any_is_still || is_still(thread.rank, now);
        any_goes_on = any_goes_on || goes_on(thread);
    }
    if (any_goes_on) forget_verdict(now);
    if (any_goes_on || verdict_ || !any_is_still || threads.size() < 2 || now < next_reading_)
        return false;
    next_reading_ = now + pause_;
    pause_ = std::min<Duration>(2 * pause_, most_pause);
    return true;
}

// Many bytes may be under way: only where nobody has used a processor since the reading before.
std::optional<Verdict> StackJudge::find_stuck(Time now, const std::vector<int>& ranks,
                                              const StackCall& call,
                                              std::span<const ProcessState> states) {
    constexpr double next_to_nothing = 0.005;  // of a processor, of each
    Used used{.at = now};
    for (const ProcessState& state : states) used.cpu += state.cpu_time;
    const std::optional<Used> before = std::exchange(used_, used);
    if (!before) return std::nullopt;
    const std::chrono::duration<double> cpu = used.cpu - before->cpu;
    const double most = next_to_nothing * static_cast<double>(ranks.size());
    if (cpu > most * std::chrono::duration<double>(now - before->at)) return std::nullopt;
    return Verdict{.kind = Verdict::Kind::stuck,
                   .waiting = ranks,
                   .text = "all ranks are in " + call.words() +
                           ", and none gets on: their arguments differ, or the network fails"};
}

void StackJudge::judge(Time now, std::span<const RankStacks> stacks,
                       std::span<const FirstThread> threads, std::span<const ProcessState> states) {
    // The reading itself has made them run.
    for (const FirstThread& thread : threads) {
        const auto seen = seen_.find(thread.rank);
        if (seen != seen_.end()) seen->second.thread = thread;
    }
    std::map<StackCall, std::vector<int>> waiting;
    std::vector<int> others;
    bool all_are_held = true;
    std::string lines;
    Time since = Time::max();
    for (std::size_t i = 0; i < stacks.size() && i < states.size(); ++i) {
        const RankStacks& one = stacks[i];
        const auto call = states[i].is_held() ? std::nullopt : call_of(one);
        if (call) {
            waiting[*call].push_back(one.rank);
            if (is_still(one.rank, now)) since = std::min(since, seen_.at(one.rank).since);
            continue;
        }
        // Who cannot be read may be anywhere.
        if (one.native.empty() && one.python.empty() && !states[i].is_held()) return;
        others.push_back(one.rank);
        all_are_held = all_are_held && states[i].is_held();
        lines += line_of(one, states[i]);
    }
    if (since == Time::max()) return;  // nobody who waits has stood still for long
    const std::string how_long = time_since(since, now);
    std::optional<Verdict> found;
    if (!others.empty()) {
        found.emplace();
        found->kind = all_are_held ? Verdict::Kind::held : Verdict::Kind::missing;
        found->ranks = others;
        std::string calls;
        for (const auto& [call, ranks] : waiting) {
            calls += (calls.empty() ? "" : ", ") + call.words();
            found->waiting.insert(found->waiting.end(), ranks.begin(), ranks.end());
        }
        std::ranges::sort(found->waiting);
        found->text = who_holds_up_whom(others, found->waiting) + ", in " + calls + ", since " +
                      how_long + lines;
    } else if (waiting.size() > 1) {
        found.emplace();
        found->kind = Verdict::Kind::mismatch;
        std::size_t most = 0;
        for (const auto& [call, ranks] : waiting) most = std::max(most, ranks.size());
        const auto has_most = [&](const auto& one) { return one.second.size() == most; };
        const bool has_majority = std::ranges::count_if(waiting, has_most) == 1;
        for (const auto& one : waiting) {
            auto& where = has_majority && has_most(one) ? found->waiting : found->ranks;
            where.insert(where.end(), one.second.begin(), one.second.end());
            lines += "\n  " + name_ranks(one.second) + ": " + one.first.words();
        }
        std::ranges::sort(found->ranks);
        std::ranges::sort(found->waiting);
        found->text = "the ranks have called different things, and wait for each other since " +
                      how_long + ":" + lines;
    } else {
        found = find_stuck(now, waiting.begin()->second, waiting.begin()->first, states);
    }
    if (!found) return;
    found->since = since;
    for (const auto& [call, ranks] : waiting) {
        for (const int rank : ranks) {
            const auto seen = seen_.find(rank);
            if (seen != seen_.end()) at_verdict_.emplace(rank, seen->second.thread);
        }
    }
    verdict_ = std::move(found);
}

}  // namespace ddp::launcher
