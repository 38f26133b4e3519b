// The rule is in find_root(). Nothing here asks the system anything, so that every case is a row of
// a table in the test.
#include "launcher/failure.hpp"

#include "contract/exit_code.hpp"

#include <algorithm>
#include <csignal>
#include <map>

namespace ddp::launcher {
namespace {

// By the exit code of run_worker, or, with a plain main, by the abort() that follows; both only
// when the error file names the peer. A program may return 82 for reasons of its own.
bool left_because_of_peer(const WorkerEnd& end) {
    const bool names_a_peer = end.error && end.error->peer && *end.error->peer != end.rank;
    const bool left = end.status.signal == 0 && end.status.code == contract::exit_because_of_peer;
    return names_a_peer && (left || end.status.signal == SIGABRT);
}

bool failed_by_itself(const WorkerEnd& end) { return !end.status.ok() && end.stopped_with == 0; }

// The rank that most of those who left because of a peer name; of equals the first named.
std::optional<int> named_peer(std::span<const WorkerEnd> ended) {
    std::map<int, int> votes;
    std::optional<int> best;
    for (const WorkerEnd& end : ended) {
        if (!left_because_of_peer(end)) continue;
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

}  // namespace

std::optional<Verdict> whose_fault(std::span<const WorkerEnd> ended) {
    const auto blame = find_root(ended);
    if (!blame) return std::nullopt;
    const WorkerEnd& root = *blame->root;
    // A rank that others name need not have failed by itself: it may hang, or have left with 0.
    const int code =
        failed_by_itself(root) ? root.status.exit_code() : contract::exit_because_of_peer;
    return Verdict{root.rank, static_cast<std::size_t>(&root - ended.data()), blame->named, code};
}

Part part_of(const WorkerEnd& end, bool is_root) {
    if (is_root) return Part::root_cause;
    if (end.stopped_with != 0) return Part::stopped;
    if (end.status.ok()) return Part::fine;
    return left_because_of_peer(end) ? Part::left : Part::failed;
}

}  // namespace ddp::launcher
