// The rule is in find_root(). Nothing here asks the system anything, so that every case is a row of
// a table in the test.
#include "launcher/report/failure.hpp"

#include "contract/exit_code.hpp"

#include <algorithm>
#include <csignal>
#include <map>
#include <unordered_map>

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

using ByRank = std::unordered_map<int, const WorkerEnd*>;

ByRank by_rank(std::span<const WorkerEnd> ended) {
    ByRank ends;
    for (const WorkerEnd& end : ended) ends.emplace(end.rank, &end);
    return ends;
}

// Where the chain ends that begins with the peer of `end`: a rank that was made to leave blames
// another in its turn. In a circle nobody is the last: then the peer itself.
int last_blamed(const ByRank& ends, const WorkerEnd& end) {
    int blamed = *end.error->peer;
    for (std::size_t steps = 0; steps < ends.size(); ++steps) {
        const auto next = ends.find(blamed);
        if (next == ends.end() || !left_because_of_peer(*next->second)) return blamed;
        blamed = *next->second->error->peer;
    }
    return *end.error->peer;
}

// The rank that most of those who left because of a peer blame in the end; of equals the first
// named. Nothing when it is none of them.
const WorkerEnd* named_peer(std::span<const WorkerEnd> ended) {
    const ByRank ends = by_rank(ended);
    std::map<int, int> votes;
    std::optional<int> best;
    for (const WorkerEnd& end : ended) {
        if (!left_because_of_peer(end)) continue;
        const int blamed = last_blamed(ends, end);
        ++votes[blamed];
        if (!best || votes[blamed] > votes[*best]) best = blamed;
    }
    const auto found = best ? ends.find(*best) : ends.end();
    return found != ends.end() ? found->second : nullptr;
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
    if (const WorkerEnd* root = named_peer(ended)) return Blame{root, true};
    return Blame{first, false};
}

}  // namespace

std::optional<RootCause> whose_fault(std::span<const WorkerEnd> ended) {
    const auto blame = find_root(ended);
    if (!blame) return std::nullopt;
    const WorkerEnd& root = *blame->root;
    // A rank that others name need not have failed by itself: it may hang, or have left with 0.
    const int code =
        failed_by_itself(root) ? root.status.exit_code() : contract::exit_because_of_peer;
    return RootCause{.rank = root.rank,
                     .index = static_cast<std::size_t>(&root - ended.data()),
                     .named_by_peers = blame->named,
                     .exit_code = code};
}

std::optional<FirstFailure> first_failure(std::span<const WorkerEnd> ended, ErrorTexts texts) {
    std::optional<FirstFailure> left;
    for (const WorkerEnd& end : ended) {
        if (!failed_by_itself(end)) continue;
        const std::string name = "rank " + std::to_string(end.rank);
        const bool may_have_left = texts == ErrorTexts::unknown &&
                                   end.status == ExitStatus{contract::exit_because_of_peer};
        if (left_because_of_peer(end)) {
            if (left) continue;
            const int peer = *end.error->peer;
            const bool has_ended = std::any_of(
                ended.begin(), ended.end(), [&](const WorkerEnd& one) { return one.rank == peer; });
            left = {has_ended ? peer : end.rank,
                    name + " left because of rank " + std::to_string(peer)};
        } else if (may_have_left) {
            if (!left) left = {end.rank, name + " ended with " + to_string(end.status)};
        } else {
            return FirstFailure{end.rank, name + " failed"};
        }
    }
    return left;
}

Part part_of(const WorkerEnd& end, bool is_root) {
    if (is_root) return Part::root_cause;
    if (end.stopped_with != 0) return Part::stopped;
    if (end.status.ok()) return Part::fine;
    return left_because_of_peer(end) ? Part::left : Part::failed;
}

}  // namespace ddp::launcher
