#include "backends/gloo/mesh.hpp"

#include "backends/gloo/slots.hpp"

#include <gloo/common/error.h>

#include <algorithm>

namespace ddp::gloo {

struct Mesh::Flight {
    const Message* message;
    Buffer buffer;
};

Mesh::Mesh(const Group& group, const std::string& address, const base::Deadline& deadline)
    : job_ranks_(group.job_ranks.begin(), group.job_ranks.end()),
      agent_abort_(group.agent_abort),
      pairs_(group.rank, group.ranks, address) {
    const PipeSignalBlock no_signal;
    pairs_.connect(*group.store, deadline);
    health_.emplace(pairs_);
    watch_.emplace([this] { return is_troubled(); });
}

Mesh::~Mesh() {
    if (!ended_) health_->say_last_words({Reason::left, rank(), ""});
    watch_.reset();
}

std::string Mesh::name_of(int peer) const {
    const PeerProcess& process = pairs_.process(peer);
    return "rank " + std::to_string(job_rank(peer)) + " (pid " + std::to_string(process.pid) +
           " on " + process.host + ")";
}

int Mesh::job_rank(int peer) const {
    return job_ranks_.empty() ? peer : job_ranks_[static_cast<std::size_t>(peer)];
}

// As a rank of the group. One outside of it does not concern the group, nor does this one itself.
int Mesh::rank_that_agent_blames() const {
    const std::uint32_t word =
        agent_abort_ != nullptr ? agent_abort_->load(std::memory_order_acquire) : 0;
    for (int peer = 0; peer < ranks(); ++peer) {
        if (word == 0 || peer == rank()) continue;
        if (job_rank(peer) == static_cast<int>(word) - 1) return peer;
    }
    return -1;
}

bool Mesh::is_troubled() noexcept {
    return ended_ || rank_that_agent_blames() >= 0 || health_->is_troubled();
}

void Mesh::post(const Message& message, Flight& flight) {
    flight = {&message, pairs_.buffer(message.data, message.bytes)};
    if (message.way == Way::send) {
        flight.buffer->send(message.peer, message.slot);
    } else {
        flight.buffer->recv(message.peer, message.slot);
    }
}

void Mesh::exchange(std::span<const Message> messages, const Errand& errand) {
    if (ended_) raise();
    const PipeSignalBlock no_signal;
    // Outlives the verdict: no buffer goes while its connection is open, which Gloo cannot bear.
    std::vector<Flight> flights;
    flights.reserve(messages.size());
    int current = -1;
    std::string gloo_says;
    try {
        for (const Way way : {Way::receive, Way::send}) {
            for (const Message& message : messages) {
                if (message.way != way || message.bytes == 0) continue;
                current = message.peer;
                post(message, flights.emplace_back());
            }
        }
        bool done = true;
        for (std::size_t i = 0; i < flights.size() && done; ++i) {
            current = flights[i].message->peer;
            done = watch_->wait(*flights[i].buffer, flights[i].message->way, errand.deadline);
        }
        if (done) return;
    } catch (const ::gloo::Exception& error) {
        gloo_says = error.what();
    } catch (const std::exception& error) {  // of memory, or a check inside Gloo
        fail({Reason::broken, rank(), errand.what + ": " + error.what()});
    }
    fail(judge(current, errand, gloo_says));
}

// The root of it, from all that is known here: what another rank found; whom the agent blames; who
// went without a word; who left though needed. `suspect` is who was waited for.
Verdict Mesh::judge(int suspect, const Errand& errand, const std::string& gloo_says) {
    const std::vector<Health::Gone> gone = health_->list_gone(gloo_says.empty() ? -1 : suspect);
    if (const auto words = find_words(gone, suspect, errand)) return *words;
    if (const int blamed = rank_that_agent_blames(); blamed >= 0) {
        return {Reason::peer_died, blamed,
                "gloo: " + name_of(blamed) + " ended during " + errand.what};
    }
    if (!gone.empty()) {
        const bool needed = !gloo_says.empty();
        const Verdict verdict = judge_gone(gone, errand.what);
        if (verdict.reason != Reason::left || needed) return verdict;
    }
    if (!gloo_says.empty()) {
        return {Reason::broken, suspect,
                errand.what + " with " + name_of(suspect) + ": " + gloo_says};
    }
    const std::string within =
        errand.deadline != nullptr ? " within " + base::to_string(errand.deadline->timeout()) : "";
    return {Reason::timed_out, suspect,
            "gloo: " + errand.what + " did not end" + within + " on " + name_of(rank()) +
                "; waiting for " + name_of(suspect) + "; is it stopped, or in other code?"};
}

// Of several ranks that gave up waiting, the one that waited for none of the others is right.
std::optional<Verdict> Mesh::find_words(const std::vector<Health::Gone>& gone, int suspect,
                                        const Errand& errand) const {
    std::optional<Verdict> best;
    for (const Health::Gone& one : gone) {
        if (!one.last_words || one.last_words->reason == Reason::left) continue;
        Verdict words = *one.last_words;
        if (words.reason == Reason::timed_out && words.culprit == rank() && suspect >= 0) {
            words = {Reason::timed_out, suspect,
                     "gloo: " + errand.what + " was given up by " + name_of(one.rank) + ", while " +
                         name_of(rank()) + " waits for " + name_of(suspect)};
        }
        const bool follows = std::any_of(gone.begin(), gone.end(), [&](const Health::Gone& other) {
            return other.last_words && other.rank == words.culprit;
        });
        if (!best || !follows) best = words;
    }
    return best;
}

Verdict Mesh::judge_gone(const std::vector<Health::Gone>& gone, const std::string& what) const {
    for (const Health::Gone& one : gone) {
        if (one.last_words) continue;
        return {Reason::peer_died, one.rank,
                "gloo: " + name_of(one.rank) + " ended, or its host, during " + what};
    }
    const int first = gone.front().rank;
    return {Reason::left, first, "gloo: " + name_of(first) + " has left the group before " + what};
}

// As judge, by one that waits for nobody.
std::optional<Verdict> Mesh::judge_from_afar(const std::string& during) {
    const std::vector<Health::Gone> gone = health_->list_gone(-1);
    if (const auto words = find_words(gone, -1, {during})) return words;
    if (const int blamed = rank_that_agent_blames(); blamed >= 0) {
        return Verdict{Reason::peer_died, blamed,
                       "gloo: " + name_of(blamed) + " ended during " + during};
    }
    if (gone.empty()) return std::nullopt;
    return judge_gone(gone, during);
}

std::exception_ptr Mesh::find_trouble(const std::string& during) noexcept {
    try {
        if (ended_) raise();
        if (const auto verdict = judge_from_afar(during)) {
            verdict->raise(job_rank(verdict->culprit));
        }
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

void Mesh::pass_on_trouble() noexcept {
    try {
        if (const auto verdict = judge_from_afar("another rank's operation")) end(*verdict);
    } catch (const std::exception&) {  // no memory: the others find out for themselves
    }
}

void Mesh::end(const Verdict& verdict) noexcept {
    const std::lock_guard lock(mutex_);
    if (verdict_) return;
    verdict_ = verdict;
    // A needed rank that left is gone for the others as if it had died.
    if (verdict_->reason == Reason::left) verdict_->reason = Reason::peer_died;
    ended_ = true;
    health_->say_last_words(*verdict_);
    follow_suspicion();
    pairs_.close_all();
}

// Deadlines pass on all ranks at about the same time. If the one that this rank waited for has just
// given up too, it knows better whom all are waiting for.
void Mesh::follow_suspicion() {
    for (int hops = 0; hops < ranks() && verdict_->reason == Reason::timed_out; ++hops) {
        const auto heard = health_->hear(verdict_->culprit);
        if (!heard || heard->reason == Reason::left || heard->culprit == rank()) return;
        verdict_ = heard;
    }
}

void Mesh::fail(const Verdict& verdict) {
    end(verdict);
    raise();
}

void Mesh::raise() {
    const std::lock_guard lock(mutex_);
    verdict_->raise(job_rank(verdict_->culprit));
}

}  // namespace ddp::gloo
