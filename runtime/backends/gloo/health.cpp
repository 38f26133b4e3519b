#include "backends/gloo/health.hpp"

#include "backends/gloo/slots.hpp"
#include "base/deadline.hpp"

#include <gloo/common/error.h>

#include <algorithm>

namespace ddp::gloo {
namespace {

using namespace std::chrono_literals;

// How long a rank that fails waits for its words to be written, and one that listens for them to
// come.
constexpr auto grace = 300ms;

}  // namespace

Health::Health(Pairs& pairs) : pairs_(pairs), peers_(static_cast<std::size_t>(pairs.size() - 1)) {
    int rank = 0;
    for (Peer& peer : peers_) {
        if (rank == pairs_.rank()) ++rank;
        peer.rank = rank++;
        peer.pulse = pairs_.buffer(&peer.nothing, sizeof peer.nothing);
        peer.words_buffer = pairs_.buffer(&peer.words, sizeof peer.words);
        try {
            peer.pulse->recv(peer.rank, pulse_slot);
            peer.words_buffer->recv(peer.rank, last_words_slot);
        } catch (const ::gloo::Exception&) {
            bury(peer);
        }
    }
}

// The order matters: an abort that finds an error leaves it to the wait to throw it.
bool Health::has_closed(Peer& peer) {
    try {
        peer.pulse->abortWaitRecv();
        peer.pulse->waitRecv(grace);
        return false;
    } catch (const ::gloo::Exception&) {
        return true;
    }
}

void Health::bury(Peer& peer) {
    peer.gone = true;
    try {
        // They came before the connection closed, if at all.
        if (peer.words_buffer->waitRecv(grace)) peer.said = decode(peer.words);
    } catch (const ::gloo::Exception&) {
    }
}

void Health::look() {
    for (Peer& peer : peers_) {
        if (!peer.gone && has_closed(peer)) bury(peer);
    }
}

bool Health::is_troubled() noexcept {
    const std::lock_guard lock(mutex_);
    look();
    return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
        return peer.gone && (!peer.said || peer.said->reason != Reason::left);
    });
}

std::vector<Health::Gone> Health::list_gone(int suspect) {
    const std::lock_guard lock(mutex_);
    look();
    std::vector<Gone> gone;
    for (Peer& peer : peers_) {
        if (peer.rank == suspect && !peer.gone) bury(peer);
        if (peer.gone) gone.push_back({peer.rank, peer.said});
    }
    return gone;
}

std::optional<Verdict> Health::hear(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_) {
        if (peer.rank != rank) continue;
        if (!peer.gone) bury(peer);
        return peer.said;
    }
    return std::nullopt;
}

void Health::say_last_words(const Verdict& verdict) noexcept {
    const PipeSignalBlock no_signal;
    const std::lock_guard lock(mutex_);
    LastWords words = encode(verdict);
    std::vector<Buffer> sends;
    for (const Peer& peer : peers_) {
        try {
            if (peer.gone) continue;
            Buffer send = pairs_.buffer(&words, sizeof words);
            send->send(peer.rank, last_words_slot);
            sends.push_back(std::move(send));
        } catch (const std::exception&) {  // it is gone by now
        }
    }
    const base::Deadline deadline = base::Deadline::after(grace);
    for (const Buffer& send : sends) {
        try {
            send->waitSend(std::max(deadline.left(), 1ms));
        } catch (const std::exception&) {
        }
    }
}

}  // namespace ddp::gloo
