// Gloo's connections: one pair for each two ranks, made through ddp's own store rather than by
// gloo::rendezvous, so that each rank reads only what is meant for it and an error names the rank.
// Everything above speaks in unbound buffers.
#pragma once

#include "backends/gloo/transport/transport.hpp"
#include "base/deadline.hpp"

#include <ddp/store.hpp>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <signal.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp::gloo {

using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

// While it lives this thread gets EPIPE instead of SIGPIPE from Gloo's writes.
class PipeSignalBlock {
public:
    PipeSignalBlock() noexcept;
    ~PipeSignalBlock();
    PipeSignalBlock(const PipeSignalBlock&) = delete;
    PipeSignalBlock& operator=(const PipeSignalBlock&) = delete;

private:
    sigset_t before_{};
    bool was_pending_ = false;
};

// A peer's address, as Gloo writes it, with the scope of this rank's own address where both are
// link-local: the peer's number of the interface means nothing here. Pure.
std::vector<char> with_own_scope(std::vector<char> address, std::span<const char> own);

class Pairs {
public:
    // Listens at the address (numeric), on a port a peer. Throws BackendError.
    Pairs(int rank, int ranks, const std::string& address);

    // Collective. Throws BackendError that names the rank, TimeoutError.
    void connect(ddp::Store& store, const base::Deadline& deadline);

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(processes_.size()); }
    const std::vector<PeerProcess>& processes() const { return processes_; }
    Buffer buffer(void* data, std::size_t bytes) {
        return context_->createUnboundBuffer(data, bytes);
    }
    // Closes all connections; what has been written still arrives. Pending operations end with an
    // error, except those that are half done: their waiters must be told. Any thread.
    void close_all() noexcept;

private:
    struct Peer {
        int rank;
        std::vector<char> address;
    };
    void connect_all(const std::vector<Peer>& peers);
    void connect_to(const Peer& peer);

    int rank_;
    std::vector<PeerProcess> processes_;  // by rank
    std::shared_ptr<::gloo::transport::Device> device_;
    std::shared_ptr<::gloo::transport::Context> context_;
};

}  // namespace ddp::gloo
