// Which parameters have a gradient to send: those that some backward since the last averages has
// used, on this rank and, once the ranks have exchanged it, on any. A parameter that no rank has
// used keeps the gradient it has.
#pragma once

#include "reducer/backward_marks.hpp"

#include <ddp/process_group.hpp>
#include <ddp/work.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ddp::reducer {

// Invariant: while an exchange is in flight nothing else writes `globally_used_`; each call that
// could waits for it first.
class UsedParameters {
public:
    explicit UsedParameters(std::size_t parameters)
        : locally_used_(parameters), before_(parameters) {}

    // With find_unused_parameters: a backward begins that uses all parameters but these.
    void start_backward(std::span<const std::size_t> unused);
    // Collective, asynchronous: starts to tell all ranks what is used here.
    void exchange(ProcessGroup& group);
    void wait() { exchange_.wait(); }
    // The backward under way is abandoned: of its parameters only those count that it has marked.
    void abandon_backward(const BackwardMarks& marks);
    // The gradients are averages (or given up): no parameter has been used since.
    void start_over();
    // A static graph's, by parameter, 0 or 1: what any rank uses in every backward.
    void learn(std::vector<std::uint8_t> used_globally) {
        globally_used_ = std::move(used_globally);
    }

    bool is_used_locally(std::size_t parameter) const { return locally_used_[parameter] != 0; }
    // In the last backward that sent; all are, where ranks have not exchanged or learned anything.
    bool is_used_globally(std::size_t parameter) const {
        return globally_used_.empty() || globally_used_[parameter] != 0;
    }
    bool knows_globally_used() const { return !globally_used_.empty(); }
    // By parameter, 0 or 1; empty: all are.
    std::span<const std::uint8_t> used_globally() const { return globally_used_; }

private:
    std::vector<std::uint8_t> locally_used_;  // by parameter, 0 or 1, since the last averages
    std::vector<std::uint8_t> before_;        // locally_used_, when the backward under way began
    std::vector<std::uint8_t> globally_used_;
    Work exchange_;  // of globally_used_
};

}  // namespace ddp::reducer
