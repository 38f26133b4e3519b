// GroupFamily: what ends together: a group, and the groups split from it whose communicators share
// NCCL's resources (DDP_NCCL_SHARE); mostly one group alone. What they share makes them one:
// - NCCL's abort of one ends the work of all, and says so to none: all of them are failed, and what
//   is in flight on any is aborted, before NCCL is asked to end the first.
// - To end one regularly NCCL waits for the work of all, which may need this rank to go on: the
//   communicators stay until the last group has gone, and are ended then in the order in which they
//   were made, the same on all ranks.
#pragma once

#include "backends/nccl/nccl_communicator.hpp"
#include "backends/nccl/nccl_operation.hpp"
#include "backends/nccl/nccl_watchdog.hpp"
#include "base/deadline.hpp"

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ddp::nccl {

// How long NCCL gets to let go after an error, and at the regular end: DDP_NCCL_ABORT_TIMEOUT, in
// seconds, or 60. Throws UsageError for what is no such number.
std::chrono::milliseconds abort_limit();

class GroupFamily {
public:
    // A group, as its end needs it.
    class Member {
    public:
        // As Watchdog::abort_all.
        virtual std::vector<std::string> abort_operations() noexcept = 0;
        virtual void tell_others(Watchdog::Finder finder) noexcept = 0;
        // Waits for what NCCL has been told to end.
        virtual void finish_own_stream(const base::Deadline& deadline) noexcept = 0;

    protected:
        ~Member() = default;
    };

    // `name`: "rank 1", by its number in the job. `limit`: as abort_limit().
    GroupFamily(std::string name, std::chrono::milliseconds limit,
                std::shared_ptr<Communicator> first);
    // No group is left: ends the communicators regularly, unless end() has aborted them.
    ~GroupFamily();
    GroupFamily(const GroupFamily&) = delete;
    GroupFamily& operator=(const GroupFamily&) = delete;

    // One that shares with the first, until the family goes.
    void keep(std::shared_ptr<Communicator> communicator);
    void join(Member& member);
    void part(Member& member) noexcept;

    const std::shared_ptr<GroupAbort>& group_abort() const { return group_abort_; }
    // Any thread; the first call counts. Throws nothing; ends the process with code 83 if NCCL
    // cannot be aborted within the limit.
    void end(std::exception_ptr error, Watchdog::Finder finder) noexcept;

private:
    std::string fail_members(Watchdog::Finder finder) noexcept;

    const std::string name_;
    const std::chrono::milliseconds limit_;
    const std::shared_ptr<GroupAbort> group_abort_ = std::make_shared<GroupAbort>();
    std::mutex mutex_;
    std::vector<std::shared_ptr<Communicator>> communicators_;  // the first ends them all
    std::vector<Member*> members_;
};

}  // namespace ddp::nccl
