#include "process_group/group_member.hpp"

#include <algorithm>
#include <utility>

namespace ddp::process_group {

GroupMember::GroupMember(WorkerEnv env, std::shared_ptr<contract::ControlRegion> control,
                         std::string_view name)
    : env_(std::move(env)),
      control_(std::move(control)),
      group_id_(name.empty() ? 0 : contract::group_id(0, name)) {}

GroupMember::GroupMember(const GroupMember& parent, std::span<const int> ranks_in_parent,
                         std::string_view name)
    : env_(parent.env_),
      control_(parent.control_),
      group_id_(parent.group_id_ == 0 ? 0 : contract::group_id(parent.group_id_, name)) {
    const auto mine = std::ranges::find(ranks_in_parent, parent.rank());
    env_.rank = static_cast<int>(mine - ranks_in_parent.begin());
    env_.world_size = static_cast<int>(ranks_in_parent.size());
    for (const int rank : ranks_in_parent) job_ranks_.push_back(parent.job_rank(rank));
}

std::shared_ptr<contract::LaunchRecorder> GroupMember::make_gpu_recorder() const {
    const std::uint32_t id = group_id_ == 0 ? 0 : contract::group_id(group_id_, "gpu");
    return std::make_shared<contract::LaunchRecorder>(control_, id, size());
}

}  // namespace ddp::process_group
