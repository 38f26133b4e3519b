// Health: which peers of this rank are gone, and what they said before. For each peer two receives
// are posted from the start: one for its abort notice, and one that nothing ever answers, whose
// error tells without blocking that the connection has closed. Invariant: a peer that is gone stays
// gone; one that left in the regular way is no trouble.
#pragma once

#include "backends/gloo/abort_reason.hpp"
#include "backends/gloo/transport/pairs.hpp"

#include <mutex>
#include <optional>
#include <vector>

namespace ddp::gloo {

class Health {
public:
    // The pairs are connected.
    explicit Health(Pairs& pairs);

    // These are Transport's.
    bool is_troubled() noexcept;

    using Gone = Transport::Gone;
    std::vector<Gone> list_gone(int suspect);

    // Closes all connections if none comes.
    std::optional<AbortReason> wait_for_notice(int rank) noexcept;

    // Before the connections are closed: until the others have sent theirs, or gone, for at most
    // answering_grace. Who has not found the same trouble by itself hears of it when they close.
    void wait_for_answers() noexcept;
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
