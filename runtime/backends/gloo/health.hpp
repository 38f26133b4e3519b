// What this rank knows of the others' lives. For each peer two receives are posted from the start:
// one for its last words, and one that nothing ever answers, whose error tells without blocking
// that the connection has closed.
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
        // What it said before; nothing: it ended without a word.
        std::optional<Verdict> last_words;
    };
    // All that are gone. `suspect`: its connection gave an error just now (-1: none).
    std::vector<Gone> list_gone(int suspect);

    // What a peer that is still there says within a short while; closes all connections if nothing.
    std::optional<Verdict> hear(int rank) noexcept;

    // To all that are still there; waits a short while until the words are on their way.
    void say_last_words(const Verdict& verdict) noexcept;

private:
    struct Peer {
        int rank = -1;
        char nothing = 0;
        LastWords words{};
        Buffer pulse;
        Buffer words_buffer;
        bool gone = false;
        std::optional<Verdict> said;
    };
    void look();
    bool has_closed(Peer& peer);
    void bury(Peer& peer);

    Pairs& pairs_;
    std::mutex mutex_;
    std::vector<Peer> peers_;  // never resized: the buffers point into it
};

}  // namespace ddp::gloo
