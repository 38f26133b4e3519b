// This rank's identity: its number in the group and in the job, the group's id, which all of its
// ranks have from the name that they give it, and the page on which ddp-launch sees what the rank
// does. Invariant: nothing of it changes after it is made, apart from what the page shows; so any
// thread may read it.
#pragma once

#include "contract/control_page.hpp"
#include "contract/launch_recorder.hpp"

#include <ddp/worker_env.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ddp::process_group {

class GroupMember {
public:
    // Of the group of all ranks of the job, which `env` names. `name`: the same on all of them, and
    // of no other group; empty: the launcher is not to know of it, nor of those made from it.
    GroupMember(WorkerEnv env, std::shared_ptr<contract::ControlRegion> control,
                std::string_view name);
    // Of a group of some of the parent's ranks, in this order; this rank is one of them.
    GroupMember(const GroupMember& parent, std::span<const int> ranks_in_parent,
                std::string_view name);

    const WorkerEnv& env() const noexcept { return env_; }  // rank and world_size are the group's
    int rank() const noexcept { return env_.rank; }
    int size() const noexcept { return env_.world_size; }
    std::uint32_t group_id() const noexcept { return group_id_; }
    // The number in the job of a rank of the group.
    int job_rank(int rank) const {
        return job_ranks_.empty() ? rank : job_ranks_[static_cast<std::size_t>(rank)];
    }
    std::span<const int> job_ranks() const noexcept { return job_ranks_; }  // empty: the same

    contract::ControlPage& page() const { return control_->own_page(); }
    contract::Timeline timeline() const { return control_->own_timeline(); }
    const std::atomic<std::uint32_t>& abort_word() const { return control_->header().abort_word; }
    // Of the group's GPU half.
    std::shared_ptr<contract::LaunchRecorder> make_gpu_recorder() const;
    void show_progress(std::int64_t step, double steps_per_second) const noexcept {
        page().step.store(step, std::memory_order_relaxed);
        page().steps_per_second.store(steps_per_second, std::memory_order_relaxed);
        timeline().end_step(step);
    }
    void set_phase(contract::Phase phase) const {
        page().phase.store(static_cast<std::uint32_t>(phase), std::memory_order_relaxed);
    }

private:
    WorkerEnv env_;
    std::shared_ptr<contract::ControlRegion> control_;  // shared with sub-groups
    std::uint32_t group_id_;
    std::vector<int> job_ranks_;
};

}  // namespace ddp::process_group
