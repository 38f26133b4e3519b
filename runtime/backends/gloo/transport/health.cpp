#include "backends/gloo/transport/health.hpp"

#include "backends/gloo/slots.hpp"
#include "base/deadline.hpp"

#include <gloo/common/error.h>

#include <algorithm>

namespace ddp::gloo {
namespace {

using namespace std::chrono_literals;

constexpr auto grace = Transport::notice_grace;

}  // namespace

Health::Health(Pairs& pairs) : pairs_(pairs), peers_(static_cast<std::size_t>(pairs.size() - 1)) {
    int rank = 0;
    for (Peer& peer : peers_) {
        if (rank == pairs_.rank()) ++rank;
        peer.rank = rank++;
        peer.liveness = pairs_.buffer(&peer.nothing, sizeof peer.nothing);
        peer.notice_buffer = pairs_.buffer(&peer.received, sizeof peer.received);
        try {
            peer.liveness->recv(peer.rank, liveness_slot);
            peer.notice_buffer->recv(peer.rank, abort_notice_slot);
        } catch (const ::gloo::Exception&) {
            mark_gone(peer);
        }
    }
}

// The order matters: an abort that finds an error leaves it to the wait to throw it.
bool Health::has_closed(Peer& peer) {
    try {
        peer.liveness->abortWaitRecv();
        peer.liveness->waitRecv(grace);
        return false;
    } catch (const ::gloo::Exception&) {
        return true;
    }
}

void Health::mark_gone(Peer& peer) {
    peer.gone = true;
    try {
        // The notice came before the connection closed, if at all.
        if (peer.notice_buffer->waitRecv(grace)) peer.notice = decode(peer.received);
    } catch (const ::gloo::Exception&) {
    }
}

void Health::look() {
    for (Peer& peer : peers_) {
        if (!peer.gone && has_closed(peer)) mark_gone(peer);
    }
}

bool Health::is_troubled() noexcept {
    const std::lock_guard lock(mutex_);
    look();
    return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
        return peer.gone && (!peer.notice || peer.notice->kind != AbortKind::left);
    });
}

std::vector<Health::Gone> Health::list_gone(int suspect) {
    const std::lock_guard lock(mutex_);
    look();
    std::vector<Gone> gone;
    for (Peer& peer : peers_) {
        if (peer.rank == suspect && !peer.gone) mark_gone(peer);
        if (peer.gone) gone.push_back({peer.rank, peer.notice});
    }
    return gone;
}

std::optional<AbortReason> Health::wait_for_notice(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_) {
        if (peer.rank != rank) continue;
        if (!peer.gone) mark_gone(peer);
        return peer.notice;
    }
    return std::nullopt;
}

void Health::wait_for_answers() noexcept {
    const std::lock_guard lock(mutex_);
    const auto deadline = base::Deadline::after(Transport::answering_grace);
    for (Peer& peer : peers_) {
        if (peer.gone) continue;
        try {
            if (!peer.notice_buffer->waitRecv(std::max(deadline.left(), 1ms))) continue;
            peer.notice = decode(peer.received);
            peer.gone = true;
        } catch (const std::exception&) {  // Gloo closes all connections when a time is over
        }
    }
}

void Health::send_abort_notice(const AbortReason& reason) noexcept {
    const PipeSignalBlock no_signal;
    const std::lock_guard lock(mutex_);
    AbortNotice notice = encode(reason);
    std::vector<Buffer> sends;
    for (const Peer& peer : peers_) {
        try {
            if (peer.gone) continue;
            Buffer send = pairs_.buffer(&notice, sizeof notice);
            send->send(peer.rank, abort_notice_slot);
            sends.push_back(std::move(send));
        } catch (const std::exception&) {  // it is gone by now
        }
    }
    const base::Deadline deadline = base::Deadline::after(Transport::writing_grace);
    for (const Buffer& send : sends) {
        try {
            send->waitSend(std::max(deadline.left(), 1ms));
        } catch (const std::exception&) {
        }
    }
}

}  // namespace ddp::gloo
