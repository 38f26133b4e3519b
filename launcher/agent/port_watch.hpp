// With --agent-store=off a free port is held for rank 0 by a socket that does not listen, and so
// anybody may listen there before rank 0 does. This looks, from the start of an attempt until
// somebody listens, at who does.
#pragma once

#include "base/unique_fd.hpp"
#include "store/admission/peer_check.hpp"

#include <cstdint>
#include <string>

namespace ddp::launcher {

class PortWatch {
public:
    // Begins to look. Throws SystemError.
    PortWatch(std::uint16_t port, store::SocketOwners::At at);

    int fd() const { return timer_.get(); }  // readable when look() is due
    void look();
    void look_now();  // the same at another time
    // Why the job must not go on: a stranger listens. Empty: nobody does yet, or it is one of the
    // job's processes (and that ends the watch).
    const std::string& problem() const { return problem_; }

private:
    std::uint16_t port_;
    store::SocketOwners::At at_;
    base::UniqueFd timer_;
    int looks_ = 0;
    std::string problem_;
    store::PeerCheck check_{{}};
    store::SocketOwners owners_;
};

}  // namespace ddp::launcher
