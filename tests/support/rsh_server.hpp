// What stands in for sshd and ssh in a HostWorld: a process outside its hosts, since no host can
// enter another one. The program rsh_client.cpp sends it a command and its own three streams.
// Invariant: what it has started ends with the host.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp::testing {

// What enters the host of that name; nothing: there is none.
using FindHost = std::function<std::optional<std::function<bool()>>(const std::string& name)>;

// Serves at that path until it is killed. As sshd does, it gives a command a shell, a bare
// environment and a banner on both outputs. Returns only on an error.
int serve_rsh(const std::string& socket, const FindHost& find_host);

}  // namespace ddp::testing
