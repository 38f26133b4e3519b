#include "backends/gloo/mesh.hpp"

#include "backends/gloo/transport/connect.hpp"
#include "base/net/socket.hpp"
#include "base/process/pidfd.hpp"

#include <poll.h>

#include <algorithm>

namespace ddp::gloo {

Mesh::Mesh(const Group& group, const Network& network, const base::Deadline& deadline)
    : rank_(group.rank),
      ranks_(group.ranks),
      job_ranks_(group.job_ranks.begin(), group.job_ranks.end()),
      agent_abort_(group.agent_abort) {
    // Not in the list above: its waits call this mesh, which must see that there is none yet.
    transport_ = connect_transport(group, network, deadline, [this] { return is_troubled(); });
    const std::string here = base::host_name();
    for (const PeerProcess& process : transport_->processes()) {
        peers_here_.emplace_back(process.host == here ? base::open_pidfd(process.pid) : -1);
    }
}

Mesh::~Mesh() {
    if (!ended_) transport_->send_abort_notice({AbortKind::left, rank(), ""});
}

std::string Mesh::name_of(int peer) const {
    const PeerProcess& process = transport_->processes()[static_cast<std::size_t>(peer)];
    return "rank " + std::to_string(job_rank(peer)) + " (pid " + std::to_string(process.pid) +
           " on " + process.host + ")";
}

int Mesh::job_rank(int peer) const {
    return job_ranks_.empty() ? peer : job_ranks_[static_cast<std::size_t>(peer)];
}

int Mesh::rank_of_job_rank(int job_rank) const {
    for (int peer = 0; peer < ranks(); ++peer) {
        if (this->job_rank(peer) == job_rank) return peer;
    }
    return -1;
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
    return ended_ || rank_that_agent_blames() >= 0 || (transport_ && transport_->is_troubled());
}

// No memory of an operation under way may go.
Exchange::~Exchange() {
    if (operations_.empty()) return;
    mesh_->end({AbortKind::peer_died, mesh_->rank(),
                "gloo: " + mesh_->name_of(mesh_->rank()) + " failed in an operation"});
}

void Exchange::start(std::span<const Message> messages, const WaitContext& context,
                     Progress progress) {
    if (mesh_->ended_) mesh_->raise();
    try {
        operations_.reserve(messages.size());
        return mesh_->transport_->start(messages, progress, operations_);
    } catch (const TransportError& error) {
        mesh_->fail(mesh_->diagnose(error.peer(), context, error.what()));
    } catch (const std::exception& error) {  // of memory, or a check inside the library
        mesh_->fail({AbortKind::broken, mesh_->rank(), context.what + ": " + error.what()});
    }
}

void Exchange::wait(const WaitContext& context) {
    if (operations_.empty()) return;
    std::optional<int> missing;
    try {
        missing = mesh_->transport_->wait(operations_, context.deadline);
    } catch (const TransportError& error) {
        mesh_->fail(mesh_->diagnose(error.peer(), context, error.what()));
    } catch (const std::exception& error) {
        mesh_->fail({AbortKind::broken, mesh_->rank(), context.what + ": " + error.what()});
    }
    if (missing) mesh_->fail(mesh_->diagnose(*missing, context, ""));
    operations_.clear();
}

void Mesh::exchange(std::span<const Message> messages, const WaitContext& context) {
    Exchange exchange(*this);
    exchange.start(messages, context, Progress::by_waiter);
    exchange.wait(context);
}

// The root cause, from all that is known on this rank, in this order: another rank's notice; the
// rank that the agent blames; a peer that ended without a notice; a peer that left though it was
// needed. `suspect` is the peer that this rank waited for.
AbortReason Mesh::diagnose(int suspect, const WaitContext& context,
                           const std::string& library_says) {
    const std::vector<Transport::Gone> gone =
        transport_->list_gone(library_says.empty() ? -1 : suspect);
    if (const auto notice = find_notice(gone, suspect, context)) return *notice;
    if (const int blamed = rank_that_agent_blames(); blamed >= 0) {
        return {AbortKind::peer_died, blamed,
                "gloo: " + name_of(blamed) + " ended while this rank was in " + context.what};
    }
    if (!gone.empty()) {
        const bool needed = !library_says.empty();
        AbortReason reason = diagnose_gone(gone, context.what);
        if (reason.kind != AbortKind::left || needed) return reason;
    }
    if (!library_says.empty()) {
        return {AbortKind::broken, suspect,
                context.what + " with " + name_of(suspect) + ": " + library_says};
    }
    const std::string within = context.deadline != nullptr
                                   ? " within " + base::to_string(context.deadline->timeout())
                                   : "";
    return {AbortKind::timed_out, suspect,
            "gloo: " + context.what + " did not end" + within + " on " + name_of(rank()) +
                "; waiting for " + name_of(suspect) + "; is it stopped, or in other code?"};
}

// Of several ranks whose wait timed out, the one that waited for none of the others is right.
std::optional<AbortReason> Mesh::find_notice(const std::vector<Transport::Gone>& gone, int suspect,
                                             const WaitContext& context) const {
    std::optional<AbortReason> best;
    for (const Transport::Gone& one : gone) {
        if (!one.notice || one.notice->kind == AbortKind::left) continue;
        AbortReason notice = *one.notice;
        const bool is_blamed = notice.kind == AbortKind::timed_out && notice.culprit == rank();
        if (is_blamed && suspect >= 0 && suspect != rank()) {
            notice = {AbortKind::timed_out, suspect,
                      "gloo: " + context.what + " was given up by " + name_of(one.rank) +
                          ", while " + name_of(rank()) + " waits for " + name_of(suspect)};
        }
        const bool follows =
            std::any_of(gone.begin(), gone.end(), [&](const Transport::Gone& other) {
                return other.notice && other.rank == notice.culprit;
            });
        if (!best || !follows) best = notice;
    }
    return best;
}

// A peer whose notice was lost may have closed its connections because of a third: one that lives
// on this host is not to blame while another's process has ended. Connections close a moment before
// their process ends, which is when its pidfd becomes readable.
int Mesh::who_died(const std::vector<Transport::Gone>& gone) const {
    constexpr int longest_end_ms = 20;
    int first = -1;
    std::vector<pollfd> peers;
    for (const base::UniqueFd& pidfd : peers_here_) peers.push_back({pidfd.get(), POLLIN, 0});
    for (const Transport::Gone& one : gone) {
        if (first < 0 && !one.notice) first = one.rank;
        if (one.notice) peers[static_cast<std::size_t>(one.rank)].fd = -1;
    }
    if (first < 0 || peers[static_cast<std::size_t>(first)].fd < 0) return first;
    ::poll(peers.data(), peers.size(), longest_end_ms);
    if (peers[static_cast<std::size_t>(first)].revents != 0) return first;
    const auto ended = std::ranges::find_if(peers, [](const pollfd& one) { return one.revents; });
    return ended == peers.end() ? first : static_cast<int>(ended - peers.begin());
}

AbortReason Mesh::diagnose_gone(const std::vector<Transport::Gone>& gone,
                                const std::string& what) const {
    if (const int dead = who_died(gone); dead >= 0) {
        return {AbortKind::peer_died, dead,
                "gloo: " + name_of(dead) + " ended, or its host, during " + what};
    }
    const int first = gone.front().rank;
    return {AbortKind::left, first,
            "gloo: " + name_of(first) + " has left the group before " + what};
}

// As diagnose, on a rank that waits for nobody.
std::optional<AbortReason> Mesh::diagnose_without_waiting(const std::string& during) {
    const std::vector<Transport::Gone> gone = transport_->list_gone(-1);
    if (auto notice = find_notice(gone, -1, {during})) return notice;
    if (const int blamed = rank_that_agent_blames(); blamed >= 0) {
        return AbortReason{AbortKind::peer_died, blamed,
                           "gloo: " + name_of(blamed) + " ended while this rank was in " + during};
    }
    if (gone.empty()) return std::nullopt;
    return diagnose_gone(gone, during);
}

std::exception_ptr Mesh::find_trouble(const std::string& during) noexcept {
    try {
        if (ended_) raise();
        if (const auto reason = diagnose_without_waiting(during)) {
            reason->raise(job_rank(reason->culprit));
        }
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

void Mesh::pass_on_trouble() noexcept {
    try {
        if (const auto reason = diagnose_without_waiting("another rank's operation")) end(*reason);
    } catch (const std::exception&) {  // no memory: the others find out for themselves
    }
}

void Mesh::end(const AbortReason& reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (abort_reason_) return;
    abort_reason_ = reason;
    // A needed rank that left is gone for the others as if it had died.
    if (abort_reason_->kind == AbortKind::left) abort_reason_->kind = AbortKind::peer_died;
    ended_ = true;
    transport_->send_abort_notice(*abort_reason_);
    adopt_reason_of_culprit();
    transport_->stop();
}

// Deadlines pass on all ranks at about the same time. If the rank that this one waited for has just
// timed out too, its notice says better whom all are waiting for.
void Mesh::adopt_reason_of_culprit() {
    for (int hops = 0; hops < ranks() && abort_reason_->kind == AbortKind::timed_out; ++hops) {
        const auto heard = transport_->wait_for_notice(abort_reason_->culprit);
        if (!heard || heard->kind == AbortKind::left || heard->culprit == rank()) return;
        abort_reason_ = heard;
    }
}

void Mesh::fail(const AbortReason& reason) {
    end(reason);
    raise();
}

void Mesh::fail_unless_told(const AbortReason& reason, int teller, const WaitContext& context) {
    const std::vector<Transport::Gone> gone = transport_->list_gone(teller);
    fail(find_notice(gone, reason.culprit, context).value_or(reason));
}

void Mesh::raise() {
    const std::lock_guard lock(mutex_);
    abort_reason_->raise(job_rank(abort_reason_->culprit));
}

}  // namespace ddp::gloo
