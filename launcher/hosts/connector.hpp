// Connects to the coordinator, again and again until somebody answers, in a process of its own: to
// look a name up can take as long as name servers do, and the agent must hear its user meanwhile.
// Invariant: the process ends with this object, and with the agent, however that ends.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::launcher {

class Connector {
public:
    static constexpr const char* torch_is_there =
        "a torchrun agent, or another PyTorch program, serves its store there; all hosts need one "
        "launcher";

    // Begins. `asks_first`: what listened there was no coordinator, and is asked once whether it is
    // a PyTorch store; if so, torch_is_there is the first news. In a single-threaded process;
    // throws SystemError.
    Connector(const std::string& host, std::uint16_t port, bool asks_first = false);
    ~Connector();
    Connector(const Connector&) = delete;
    Connector& operator=(const Connector&) = delete;

    int fd() const { return socket_.get(); }  // readable when there is news
    // A connection: the last news. Without one: why the last try had none, in words.
    struct News {
        base::UniqueFd connection{};
        std::string trouble{};
    };
    // Nothing: there is none now.
    std::optional<News> take();

private:
    base::UniqueFd socket_;
    pid_t pid_ = 0;
};

}  // namespace ddp::launcher
