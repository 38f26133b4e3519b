// What the host's own loops have in common when bench/method.hpp measures them as a library.
#pragma once

#include <ddp/process_group.hpp>

#include <span>

namespace ddp::bench {

class HostCase {
public:
    explicit HostCase(ProcessGroup& group) : group_(group) {}
    void barrier() { group_.barrier().wait(); }
    int agree(int number) {
        group_.broadcast(std::span<int>{&number, 1}).wait();
        return number;
    }
    void average(std::span<double> values) { group_.all_reduce(values, ReduceOp::avg).wait(); }

protected:
    ProcessGroup& group_;
};

}  // namespace ddp::bench
