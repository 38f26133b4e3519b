// The rule is in find_root(); the rest is words for it. Nothing here asks the system anything, so
// that every case is a row of a table in the test.
#include "launcher/failure.hpp"

#include "contract/exit_code.hpp"

#include <algorithm>
#include <csignal>
#include <map>
#include <vector>

namespace ddp::launcher {
namespace {

constexpr std::size_t max_message_bytes = 4000;

// By the exit code of run_worker, or, with a plain main, by the abort() that follows when the
// terminate handler has written down which peer it was.
bool left_because_of_peer(const WorkerEnd& end) {
    const bool aborted = end.status.signal == SIGABRT && end.error && end.error->peer;
    return aborted || (end.status.signal == 0 && end.status.code == contract::exit_because_of_peer);
}

bool failed_by_itself(const WorkerEnd& end) { return !end.status.ok() && end.stopped_with == 0; }

// The rank that most of those who left because of a peer name; of equals the first named.
std::optional<int> named_peer(std::span<const WorkerEnd> ended) {
    std::map<int, int> votes;
    std::optional<int> best;
    for (const WorkerEnd& end : ended) {
        if (!left_because_of_peer(end) || !end.error || !end.error->peer) continue;
        const int peer = *end.error->peer;
        ++votes[peer];
        if (!best || votes[peer] > votes[*best]) best = peer;
    }
    return best;
}

const WorkerEnd* find_rank(std::span<const WorkerEnd> ended, int rank) {
    const auto found = std::find_if(ended.begin(), ended.end(),
                                    [&](const WorkerEnd& end) { return end.rank == rank; });
    return found != ended.end() ? &*found : nullptr;
}

struct Blame {
    const WorkerEnd* root;
    bool named;  // by its peers: it did not fail first, or not at all
};

std::optional<Blame> find_root(std::span<const WorkerEnd> ended) {
    const WorkerEnd* first = nullptr;
    for (const WorkerEnd& end : ended) {
        if (!failed_by_itself(end)) continue;
        if (!left_because_of_peer(end)) return Blame{&end, false};
        if (first == nullptr) first = &end;
    }
    if (first == nullptr) return std::nullopt;
    if (const auto peer = named_peer(ended)) {
        if (const WorkerEnd* root = find_rank(ended, *peer)) return Blame{root, true};
    }
    return Blame{first, false};
}

std::string describe_rank(const WorkerEnd& end) {
    return "rank " + std::to_string(end.rank) + " (local rank " + std::to_string(end.local_rank) +
           ", pid " + std::to_string(end.pid) + ")";
}

// Under the first line, with each of its own lines indented.
std::string indented(std::string text) {
    if (text.size() > max_message_bytes) {
        text.resize(max_message_bytes);
        text += " ...";
    }
    while (!text.empty() && text.back() == '\n') text.pop_back();
    std::string result = "\n  ";
    for (const char c : text) {
        result += c;
        if (c == '\n') result += "  ";
    }
    return result;
}

// "was stopped by SIGKILL", "ended with exit code 0 after SIGTERM", "left with exit code 82".
std::string describe_end(const WorkerEnd& end) {
    if (end.stopped_with == 0) {
        return (end.status.signal == 0 ? "left with " : "ended by ") + to_string(end.status);
    }
    if (end.status.signal == end.stopped_with)
        return "was stopped by " + signal_name(end.stopped_with);
    return "ended with " + to_string(end.status) + " after " + signal_name(end.stopped_with);
}

std::string describe_others(std::span<const WorkerEnd> ended, const WorkerEnd* root) {
    std::vector<const WorkerEnd*> others;
    for (const WorkerEnd& end : ended) {
        const bool undisturbed = end.status.ok() && end.stopped_with == 0;
        if (&end != root && !undisturbed) others.push_back(&end);
    }
    std::sort(others.begin(), others.end(),
              [](const WorkerEnd* a, const WorkerEnd* b) { return a->rank < b->rank; });
    std::string text;
    for (const WorkerEnd* end : others) {
        text += (text.empty() ? "rank " : ", rank ") + std::to_string(end->rank) + " " +
                describe_end(*end);
    }
    return text;
}

}  // namespace

std::string describe_failure(const WorkerEnd& end) {
    return describe_rank(end) + " failed: " + to_string(end.status);
}

std::optional<Verdict> whose_fault(std::span<const WorkerEnd> ended) {
    const auto blame = find_root(ended);
    if (!blame) return std::nullopt;
    const WorkerEnd& root = *blame->root;
    Verdict verdict;
    verdict.rank = root.rank;
    // A rank that others name need not have failed by itself: it may hang, or have left with 0.
    verdict.exit_code =
        failed_by_itself(root) ? root.status.exit_code() : contract::exit_because_of_peer;
    verdict.report = blame->named
                         ? describe_rank(root) + " made the others leave: it " + describe_end(root)
                         : describe_failure(root);
    if (root.error) verdict.report += indented(root.error->message);
    const std::string others = describe_others(ended, &root);
    if (!others.empty()) verdict.report += "\nthen: " + others;
    return verdict;
}

std::string describe_stop(int signal, std::span<const WorkerEnd> ended) {
    const std::string workers = describe_others(ended, nullptr);
    return "stopped by " + signal_name(signal) + (workers.empty() ? "" : "; " + workers);
}

}  // namespace ddp::launcher
