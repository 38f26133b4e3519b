// Which rank sends what to which in a collective. Two steps do most of it: each rank reduces its
// share of the elements from everybody's, and the shares are gathered. Large calls go in chunks,
// two of them under way, so that what others send is added while the caches have it.
#pragma once

#include "backends/backend.hpp"
#include "backends/gloo/mesh.hpp"
#include "backends/gloo/shares.hpp"
#include "backends/gloo/slots.hpp"
#include "backends/reduction/reduce.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace ddp::gloo {

class Schedule {
public:
    // All ranks' calls have been found the same. `mesh` is null in a world of one; `staging` is
    // kept between calls and grows as needed.
    Schedule(Mesh* mesh, const backends::Call& call, std::span<const double> factors,
             const WaitContext& context, std::vector<std::byte>& staging);

    void run();

private:
    void all_reduce();
    void all_reduce_small();
    void reduce();
    void broadcast();
    void all_gather();
    void gather();
    void scatter();
    void reduce_scatter();
    void all_to_all();

    // A chunk of a reduction: this rank reduces its share of it, into `own`.
    struct Reduction {
        Shares shares;  // of the tensor, by rank
        std::byte* own = nullptr;
    };
    struct UnderWay {
        Reduction reduction;
        std::optional<Exchange> inputs;
        std::optional<Exchange> results;
    };
    template <class Plan, class PassOn>
    void reduce_in_chunks(const Plan& plan, const PassOn& pass_on);
    void collect_inputs(const Reduction& chunk, std::byte* theirs);
    void add_inputs(const Reduction& chunk, const std::byte* theirs);
    void collect_gather(std::byte* buffer, const Shares& shares);
    void reduce_inputs(std::byte* output, std::size_t elements);

    Shares split(const Share& whole) const;                                    // among the ranks
    Shares parts_of(std::vector<std::size_t> backends::Parts::*counts) const;  // of the call
    std::size_t bytes(std::size_t elements) const { return elements * size_of(call_.dtype); }
    std::byte* stage(std::size_t wanted_bytes);

    // Collected, then started or exchanged at once. Ranks other than this one.
    void send(std::size_t peer, const std::byte* data, std::size_t size);
    void receive(std::size_t peer, std::byte* data, std::size_t size);
    void flush();
    void start(std::optional<Exchange>& exchange);
    void wait(std::optional<Exchange>& exchange);

    Mesh* mesh_;
    const backends::Call& call_;
    std::span<const double> factors_;
    const WaitContext& context_;
    std::vector<std::byte>& staging_;
    std::size_t ranks_;
    std::size_t me_;
    std::size_t root_;
    const std::byte* input_;
    std::byte* output_;
    MessageList messages_{collective_slot};
    std::vector<const std::byte*> inputs_;  // of a reduction, by rank
};

}  // namespace ddp::gloo
