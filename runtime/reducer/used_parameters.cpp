#include "reducer/used_parameters.hpp"

#include <algorithm>

namespace ddp::reducer {

void UsedParameters::start_backward(std::span<const std::size_t> unused) {
    before_ = here_;
    std::vector<bool> is_unused(here_.size(), false);
    for (const std::size_t parameter : unused) is_unused[parameter] = true;
    for (std::size_t p = 0; p < here_.size(); ++p) {
        if (!is_unused[p]) here_[p] = 1;
    }
}

void UsedParameters::exchange(ProcessGroup& group) {
    exchange_ = Work();
    anywhere_ = here_;
    if (group.size() > 1) exchange_ = group.all_reduce(anywhere_, ReduceOp::max);
}

void UsedParameters::abandon_backward(const BackwardMarks& marks) {
    here_ = before_;
    for (std::size_t p = 0; p < here_.size(); ++p) {
        if (marks.marks(p) > 0) here_[p] = 1;
    }
    exchange_ = Work();
}

void UsedParameters::start_over() {
    std::ranges::fill(here_, std::uint8_t{0});
    exchange_ = Work();
}

}  // namespace ddp::reducer
