// OwnAddresses: which addresses are this host's, in this network namespace. The kernel lists them,
// and tells of each change (rtnetlink(7)): they are listed anew only then, since that takes longer
// than to accept a connection.
#pragma once

#include "base/net/address.hpp"
#include "base/unique_fd.hpp"

#include <optional>
#include <vector>

namespace ddp::base {

// Single-threaded. Nothing is asked before the first question.
class OwnAddresses {
public:
    // Whether it is an interface's now. Where the kernel lists nothing: whether a socket can be
    // bound to it, and yes where that cannot be told either.
    bool contains(const SocketAddress& address);

private:
    bool has_changed();

    bool is_asked_ = false;
    UniqueFd changes_;  // a message comes with each; none: there may be one at any time
    std::optional<std::vector<SocketAddress>> listed_;  // nothing: the kernel lists none
};

}  // namespace ddp::base
