// ServedHosts: from which other hosts a server's clients may come. Nobody can ask a client on
// another host who it is; what is known is its address. Invariant: an address that is refused is
// named in the log once, and memory for such names is bounded.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/net/address.hpp"

namespace ddp::store {

class ServedHosts {
public:
    enum class Before { all, none };
    // Who is served until the first call of set().
    explicit ServedHosts(Before before) : before_(before) {}

    // From now on these alone: numeric addresses, also with %scope. Returns those that are none
    // here (a name, an interface that is not there): nobody has them.
    std::vector<std::string> set(const std::vector<std::string>& addresses);
    // Of a connection whose other end is on another host. Nothing: it is served. Else why not, in
    // one line; empty when the log has that line already, or the connection has been reset.
    std::optional<std::string> refusal(int connection);

private:
    static constexpr std::size_t most_named = 256;

    Before before_;
    std::optional<std::vector<base::SocketAddress>> hosts_;  // nothing: set() was never called
    std::set<std::string> named_;                            // in a line
};

}  // namespace ddp::store
