// What a ProcessGroup holds. Invariant: the members are destroyed in reverse order, so that no
// operation is left when the store and the control page go.
#pragma once

#include "base/deadline.hpp"
#include "process_group/device_dispatch.hpp"
#include "process_group/group_member.hpp"
#include "process_group/group_reducers.hpp"

#include <ddp/process_group.hpp>
#include <ddp/store.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace ddp {

class __attribute__((visibility("hidden"))) ProcessGroup::Impl {
public:
    // Meets the other ranks, at the store; null in a world of one.
    Impl(process_group::GroupMember member, std::shared_ptr<Store> store,
         const process_group::DispatchOptions& options, const base::Deadline& deadline)
        : member_(std::move(member)),
          store_(std::move(store)),
          dispatch_(member_, store_.get(), options, reducers_.held(), deadline) {}
    // Of some of the parent's ranks, in this order; this rank is one of them. They meet at the
    // parent's store under keys of their own, which begin with `keys`. `shared`: of
    // DeviceDispatch::split.
    Impl(const Impl& parent, std::span<const int> ranks, const std::string& keys,
         const base::Deadline& deadline, std::shared_ptr<backends::SharedResources> shared);

    const process_group::GroupMember& member() const noexcept { return member_; }
    process_group::GroupReducers& reducers() noexcept { return reducers_; }
    process_group::DeviceDispatch& dispatch() noexcept { return dispatch_; }
    // How many times this group has been split so far; the same on all ranks.
    int count_split() noexcept { return splits_++; }

private:
    process_group::GroupMember member_;
    std::shared_ptr<Store> store_;
    process_group::GroupReducers reducers_;
    process_group::DeviceDispatch dispatch_;
    int splits_ = 0;
};

}  // namespace ddp
