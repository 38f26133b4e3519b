// Health: which peers of this rank are gone, and what they said before. For each peer two receives
// are posted from the start: one for its abort notice, and one that nothing ever answers, whose
// error tells without blocking that the connection has closed. Invariant: a peer that is gone stays
// gone; one that left in the regular way is no trouble.
#pragma once

#include "backends/gloo/abort_reason.hpp"
#include "backends/gloo/pairs.hpp"

#include <mutex>
#include <optional>
#include <vector>

namespace ddp::gloo {

class Health {
public:
    // The pairs are connected.
    explicit Health(Pairs& pairs);

    // Whether a peer is gone that did not leave in the regular way. Any thread.
    bool is_troubled() noexcept;

    struct Gone {
        int rank;
        // Nothing: it ended without one.
        std::optional<AbortReason> notice;
    };
    // All that are gone. `suspect`: its connection gave an error just now (-1: none).
    std::vector<Gone> list_gone(int suspect);

    // The notice of a peer that is still there, if it comes within a short while; closes all
    // connections if none does.
    std::optional<AbortReason> wait_for_notice(int rank) noexcept;

    // To all that are still there; waits a short while until the notices are on their way.
    void send_abort_notice(const AbortReason& reason) noexcept;

private:
    struct Peer {
        int rank = -1;
        char nothing = 0;  // where the liveness receive would write
        AbortNotice received{};
        Buffer liveness;
        Buffer notice_buffer;
        bool gone = false;
        std::optional<AbortReason> notice;
    };
    void look();
    bool has_closed(Peer& peer);
    void mark_gone(Peer& peer);

    Pairs& pairs_;
    std::mutex mutex_;
    std::vector<Peer> peers_;  // never resized: the buffers point into it
};

}  // namespace ddp::gloo
