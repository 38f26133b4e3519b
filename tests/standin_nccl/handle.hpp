// What ncclComm_t points to, and the rules that each call on one obeys.
#pragma once

#include "standin_nccl/communicator.hpp"

#include <nccl.h>

#include <atomic>
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

// Between ncclGroupStart and ncclGroupEnd of the calling thread.
bool in_group();
void add_init_to_group(ncclComm_t comm);
// What Abort or Revoke leaves to ncclGroupEnd.
using End = ncclResult_t (*)(ncclComm_t comm);
void add_end_to_group(ncclComm_t comm, End end);

}  // namespace stand_in
