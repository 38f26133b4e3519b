// Carries what workers write to the channel, whole line by whole line, and never loses one: when
// the front cannot keep up, the pipes are left full, and workers wait in write() as with any pipe.
#pragma once

#include "launcher/channel.hpp"
#include "launcher/poller.hpp"
#include "launcher/worker.hpp"

#include <vector>

namespace ddp::launcher {

class Relay {
public:
    // Both are borrowed and outlive the relay. The workers may still grow.
    Relay(Channel& channel, std::vector<Worker>& workers) : channel_(channel), workers_(workers) {}

    // Readable when some pipe is. Not to be looked at while paused().
    int fd() const { return pipes_.fd(); }
    bool paused() const { return channel_.congested(); }

    void add_pipes_of(std::size_t worker);  // those that it has
    // Relays what is there now, a bounded amount.
    void relay_ready();

    // When no descendant is left that could write: an empty pipe stays empty. Relays the rest and
    // closes the pipes. Waits only for the front, as long as that lives.
    void drain();

private:
    bool relay(Worker& worker, Stream stream);

    Channel& channel_;
    std::vector<Worker>& workers_;
    Poller pipes_;
};

}  // namespace ddp::launcher
