// Transport: the connections between the ranks of a mesh, each to each. Two libraries can be it:
// Gloo (gloo_transport.hpp) and UCX (ucx_transport.hpp). Invariant: messages of one slot from one
// rank to another are matched in the order in which each side has started them.
#pragma once

#include "backends/gloo/abort_reason.hpp"
#include "backends/gloo/message.hpp"
#include "base/deadline.hpp"

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::gloo {

struct PeerProcess {
    pid_t pid = 0;
    std::string host;
};

// What a connection has shown. The text is the library's.
class TransportError : public std::runtime_error {
public:
    TransportError(int peer, const std::string& says) : std::runtime_error(says), peer_(peer) {}
    int peer() const { return peer_; }

private:
    int peer_;
};

// One message under way. Goes when it is done, or after Transport::stop: its memory is free
// from then on.
class Operation {
public:
    explicit Operation(int peer) : peer_(peer) {}
    virtual ~Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    int peer() const { return peer_; }

private:
    int peer_;
};
using Operations = std::vector<std::unique_ptr<Operation>>;

// Whether whoever starts messages waits for them at once. If not, they must move meanwhile.
enum class Progress { by_waiter, in_background };

// All functions: any thread.
class Transport {
public:
    // How long a rank that listens waits for a notice to come.
    static constexpr std::chrono::milliseconds notice_grace{300};
    // How long a rank that fails waits for its notices to be written, behind what is under way to
    // the same ranks. One that reads nothing costs so much; one that is gone, nothing.
    static constexpr std::chrono::milliseconds writing_grace{1000};
    // How long a rank that fails waits, before it closes its connections, for the others' notices:
    // the kernel would throw away what a peer has not read by the time that it writes again.
    static constexpr std::chrono::milliseconds answering_grace{20};

    virtual ~Transport() = default;
    Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    virtual const std::vector<PeerProcess>& processes() const = 0;  // by rank
    // How much a message of many should have: enough that its own cost is small, and no more, so
    // that what is done with it finds it in the caches.
    virtual std::size_t long_message_bytes() const = 0;

    // Starts them, receives first, without those of no bytes. Does not block. Throws
    // TransportError; `started` then has those before.
    virtual void start(std::span<const Message> messages, Progress progress,
                       Operations& started) = 0;
    // Blocks until all are done: nothing. Else it was interrupted, by the deadline (null: none), by
    // trouble anywhere, or by stop: the rank of the first that is not done. Throws
    // TransportError.
    virtual std::optional<int> wait(const Operations& operations,
                                    const base::Deadline* deadline) = 0;

    struct Gone {
        int rank;
        // Nothing: it ended without one.
        std::optional<AbortReason> notice;
    };
    // Whether a peer is gone that did not leave in the regular way.
    virtual bool is_troubled() noexcept = 0;
    // All that are gone. A peer that is gone stays gone. `suspect`: its connection gave an error
    // just now (-1: none).
    virtual std::vector<Gone> list_gone(int suspect) = 0;
    // The notice of a peer that is still there, if it comes within a short while.
    virtual std::optional<AbortReason> wait_for_notice(int peer) noexcept = 0;
    // To all that are still there; waits a short while until the notices are on their way.
    virtual void send_abort_notice(const AbortReason& reason) noexcept = 0;
    // Messages move no more, but what has been written still arrives. Waits are interrupted or end
    // with an error.
    virtual void stop() noexcept = 0;

protected:
    // Receives before sends: a peer's message then finds its place.
    template <class Function>
    static void for_each_in_order(std::span<const Message> messages, const Function& function) {
        for (const Direction direction : {Direction::receive, Direction::send}) {
            for (const Message& message : messages) {
                if (message.direction == direction && message.bytes > 0) function(message);
            }
        }
    }
};

}  // namespace ddp::gloo
