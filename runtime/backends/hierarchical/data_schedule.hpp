// broadcast, all_gather, gather, scatter and all_to_all between hosts: what stays on a host goes
// through its shared memory while the rest is under way.
#pragma once

#include "backends/backend.hpp"
#include "backends/gloo/slots.hpp"
#include "backends/hierarchical/places.hpp"

#include <cstddef>
#include <vector>

namespace ddp::hierarchical {

class DataSchedule {
public:
    // All ranks' calls have been found the same.
    DataSchedule(const Places& places, const backends::Call& call);

    void run();

private:
    void broadcast();
    void start_broadcast(gloo::Exchange& exchange, const Share& chunk);
    void finish_broadcast(gloo::Exchange& exchange, const Share& chunk);
    void all_gather();
    void gather_on_this_host(std::size_t of, const gloo::Shares& parts);
    void gather();
    void scatter();
    void all_to_all();

    // Starts what has been collected, does `meanwhile`, and waits.
    template <class Body>
    void exchange(const Body& meanwhile);
    void run_here(const backends::Call& step);
    void start(gloo::Exchange& exchange);  // of what has been collected
    std::size_t bytes(std::size_t elements) const { return elements * size_of(call_.dtype); }
    gloo::Shares parts_of(std::vector<std::size_t> backends::Parts::*counts) const;  // of the call

    const Places& places_;
    const HostLayout& layout_;
    const backends::Call& call_;
    std::size_t root_;
    bool root_is_here_;
    const std::byte* input_;
    std::byte* output_;
    gloo::MessageList messages_{gloo::collective_slot};
};

}  // namespace ddp::hierarchical
