// Where a job's metrics are asked for (--metrics): a socket that listens, which the front makes, so
// that an address that cannot be had is a wrong command line, and the agent serves.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/options/option_kinds.hpp"

#include <sys/types.h>

#include <string>

namespace ddp::launcher {

class MetricsListener {
public:
    MetricsListener() = default;  // none
    // Of a Unix socket, which its user alone may use, one that nobody serves any more is replaced.
    // Throws UsageError.
    explicit MetricsListener(const MetricsAddress& address);

    int fd() const { return fd_.get(); }                       // non-blocking; -1: none
    bool has_chosen_port() const { return has_chosen_port_; }  // as the address left it open
    // "http://127.0.0.1:9400/metrics", "unix:/run/ddp.sock"
    std::string where() const;
    // Of a Unix socket, unless somebody has put another there; who serves it does that at the end.
    void remove_file() const noexcept;

private:
    MetricsAddress address_;
    bool has_chosen_port_ = false;
    dev_t device_ = 0;  // of a Unix socket's file, with its number there
    ino_t inode_ = 0;
    base::UniqueFd fd_;
};

}  // namespace ddp::launcher
