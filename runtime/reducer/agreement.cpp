#include "reducer/agreement.hpp"

#include "process_group/process_group_impl.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace ddp::reducer {

std::vector<std::string> gather_texts(const std::string& mine, ProcessGroup& group) {
    const auto ranks = static_cast<std::size_t>(group.size());
    std::vector<std::int64_t> sizes(ranks);
    std::vector<std::int64_t> size{static_cast<std::int64_t>(mine.size())};
    group.all_gather(size, sizes, Stream{}, CallSite{}).wait();
    const auto longest = static_cast<std::size_t>(*std::ranges::max_element(sizes));
    std::vector<std::uint8_t> padded(longest);
    std::ranges::copy(mine, padded.begin());
    std::vector<std::uint8_t> all(longest * ranks);
    group.all_gather(padded, all, Stream{}, CallSite{}).wait();
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * longest);
        texts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(sizes[rank]));
    }
    return texts;
}

void throw_if_any(const std::string& mistake, ProcessGroup& group) {
    int wrong = mistake.empty() ? 0 : 1;
    if (group.size() > 1) wrong = group.all_reduce(wrong, ReduceOp::sum, CallSite{});
    if (wrong == 0) return;
    const std::vector<std::string> texts = gather_texts(mistake, group);
    std::string message;
    std::string others;
    std::optional<int> culprit;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (texts[rank].empty()) continue;
        if (message.empty()) {
            culprit = group.impl().job_rank(static_cast<int>(rank));
            message = "reducer: on rank " + std::to_string(rank) + ", " + texts[rank];
        } else {
            others += (others.empty() ? "" : ", ") + std::to_string(rank);
        }
    }
    if (!others.empty()) message += " (likewise on rank " + others + ")";
    throw UsageError(message, culprit);
}

}  // namespace ddp::reducer
