// What ncclComm_t points to, and the rules that each call on one obeys.
#pragma once

#include "standin_nccl/communicator.hpp"

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

// Stays until the process ends, so that a call on one that is gone can be told.
struct ncclComm {
    std::shared_ptr<stand_in::Communicator> communicator;
    std::atomic<bool> inside = false;  // a thread is
    std::atomic<bool> gone = false;
};

namespace stand_in {

ncclComm_t make_handle(std::shared_ptr<Communicator> communicator);

// flags: what another thread may do beside the one that is inside.
enum class Needs { flags, life, readiness, work };

// A call on a communicator: alone in it while this lives, but for flags. Usable unless refused.
class Call {
public:
    Call(const char* function, ncclComm_t comm, Needs needs);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    bool refused() const { return result_ != ncclSuccess; }
    ncclResult_t result() const { return result_; }
    const std::shared_ptr<Communicator>& communicator() const { return comm_->communicator; }
    Communicator* operator->() const { return comm_->communicator.get(); }
    void end_handle() { comm_->gone = true; }

private:
    ncclResult_t check(const char* function, Needs needs);

    ncclComm_t comm_ = nullptr;
    bool entered_ = false;
    ncclResult_t result_ = ncclSuccess;
};

// Whether all of it is memory of the communicator's device.
bool owns(const Call& call, const void* memory, std::size_t size);

// Between ncclGroupStart and ncclGroupEnd of the calling thread.
bool in_group();
void add_init_to_group(ncclComm_t comm);
// What Abort or Revoke leaves to ncclGroupEnd.
using End = ncclResult_t (*)(ncclComm_t comm);
void add_end_to_group(ncclComm_t comm, End end);
// What an error in a group is: the group's.
ncclResult_t note_in_group(ncclResult_t result);

// What came of a communicator's background thread.
ncclResult_t finished(const Call& call);
// Runs what meets the other ranks on the background thread: now, or all that is in a group at its
// end, that of all its communicators at once. Waits for it if the communicator blocks.
ncclResult_t run_job(const Call& call, ncclComm_t comm, std::function<void()> job);

// Why a communicator that shares the resources of another one is of no use any more.
inline constexpr const char* after_a_sharer =
    ": its work has been aborted, or that of one that shares its resources";

}  // namespace stand_in
