#include "reducer/used_parameters.hpp"

#include <algorithm>

namespace ddp::reducer {

void UsedParameters::start_backward(std::span<const std::size_t> unused) {
    before_ = locally_used_;
    std::vector<bool> is_unused(locally_used_.size(), false);
    for (const std::size_t parameter : unused) is_unused[parameter] = true;
    for (std::size_t p = 0; p < locally_used_.size(); ++p) {
        if (!is_unused[p]) locally_used_[p] = 1;
    }
}

void UsedParameters::exchange(ProcessGroup& group) {
    exchange_ = Work();
    globally_used_ = locally_used_;
    if (group.size() > 1) exchange_ = group.all_reduce(globally_used_, ReduceOp::max);
}

void UsedParameters::abandon_backward(const BackwardMarks& marks) {
    locally_used_ = before_;
    for (std::size_t p = 0; p < locally_used_.size(); ++p) {
        if (marks.marks(p) > 0) locally_used_[p] = 1;
    }
    exchange_ = Work();
}

void UsedParameters::start_over() {
    std::ranges::fill(locally_used_, std::uint8_t{0});
    exchange_ = Work();
}

}  // namespace ddp::reducer
