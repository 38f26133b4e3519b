#include "process_group/group_member.hpp"

#include <algorithm>
#include <utility>

namespace ddp::process_group {
namespace {

std::uint32_t next_group_number() {
    static std::atomic<std::uint32_t> groups{0};
    return groups++;
}

}  // namespace

GroupMember::GroupMember(WorkerEnv env, std::shared_ptr<contract::ControlRegion> control)
    : env_(std::move(env)), control_(std::move(control)), group_number_(next_group_number()) {}

GroupMember::GroupMember(const GroupMember& parent, std::span<const int> ranks_in_parent)
    : env_(parent.env_), control_(parent.control_), group_number_(next_group_number()) {
    const auto mine = std::ranges::find(ranks_in_parent, parent.rank());
    env_.rank = static_cast<int>(mine - ranks_in_parent.begin());
    env_.world_size = static_cast<int>(ranks_in_parent.size());
    for (const int rank : ranks_in_parent) job_ranks_.push_back(parent.job_rank(rank));
}

}  // namespace ddp::process_group
