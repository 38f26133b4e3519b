// One row of ddp-bench: a collective with its buffers, as bench/method.hpp measures it.
#pragma once

#include "bench/bench_options.hpp"
#include "bench/layout.hpp"

#include <ddp/process_group.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ddp::bench {

// The patterns of all rows; they do not depend on the size.
struct Patterns {
    Patterns(const Options& options, int ranks);
    std::vector<Pattern> of_rank;
    Pattern reduced;
};

// Where the tensors of a run are. Throws UsageError when the group has no GPU and one is asked for.
Device place_of(const ProcessGroup& group, Where where);

class CollectiveCase {
public:
    // Collective: path shared allocates through the group.
    CollectiveCase(ProcessGroup& group, const Options& options, const Patterns& patterns,
                   std::size_t bytes);

    std::size_t bytes() const { return layout_.elements * size_of(options_.dtype); }
    std::size_t count() const { return layout_.part > 0 ? layout_.part : layout_.elements; }

    void rewrite(int iteration);
    void barrier() { group_.barrier().wait(); }
    void call();
    int agree(int number);
    void average(std::span<double> values);

    // Over all ranks, after the call of this iteration. Collective.
    std::int64_t count_wrong(int iteration);
    // The same for one call that finds other values in its output.
    std::int64_t count_wrong_from_scratch();

private:
    bool is_on_gpu() const { return where_.type == DeviceType::cuda; }
    Tensor make_tensor(std::size_t elements, std::size_t most_elements);
    void send_to_the_next();

    ProcessGroup& group_;
    const Options& options_;
    const Patterns& patterns_;
    Device where_;
    ReduceOp op_;
    Layout layout_;
    Tensor input_;
    Tensor output_;
    Tensor written_;  // on the host: the input, to be copied to a GPU; else the input itself
};

}  // namespace ddp::bench
