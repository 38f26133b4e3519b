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

// Invariant: while an exchange is in flight nothing else writes `anywhere_`; each call that could
// waits for it first.
class UsedParameters {
public:
    explicit UsedParameters(std::size_t parameters) : here_(parameters), before_(parameters) {}

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
    void learn(std::vector<std::uint8_t> anywhere) { anywhere_ = std::move(anywhere); }

    bool here(std::size_t parameter) const { return here_[parameter] != 0; }
    // In the last backward that sent; all are, where ranks have not exchanged or learned anything.
    bool anywhere(std::size_t parameter) const {
        return anywhere_.empty() || anywhere_[parameter] != 0;
    }
    bool is_known_anywhere() const { return !anywhere_.empty(); }
    // By parameter, 0 or 1; empty: all are.
    std::span<const std::uint8_t> anywhere() const { return anywhere_; }

private:
    std::vector<std::uint8_t> here_;    // by parameter, 0 or 1, since the last averages
    std::vector<std::uint8_t> before_;  // here_, when the backward under way began
    std::vector<std::uint8_t> anywhere_;
    Work exchange_;  // of anywhere_
};

}  // namespace ddp::reducer
