// One rank's end of a communicator. Its calls come from one thread at a time (the handle sees to
// that); beside them run its background thread (init, split) and the streams that work for it.
//
//     starting --init done--> ready --finalize--> finalizing --all ranks--> finalized
//     any --revoke--> revoked        any --abort--> aborted: everything of it ends at once
#pragma once

#include "standin_nccl/config.hpp"
#include "standin_nccl/kernel.hpp"
#include "standin_nccl/knobs.hpp"
#include "standin_nccl/region.hpp"
#include "standin_nccl/sharing.hpp"
#include "support/host_stream.h"

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace stand_in {

// The program's devices; null: it has none.
const ddp_host_driver* find_driver();

class Communicator : public std::enable_shared_from_this<Communicator> {
public:
    using Seat = stand_in::Seat;
    Communicator(const Seat& seat, const ncclUniqueId& id, std::shared_ptr<Shared> shared);
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    const Seat& seat() const { return seat_; }
    bool is_in_progress() const;  // without being a poll
    bool is_finalized() const { return finalizing_; }
    bool is_revoked() const { return revoked_; }
    // Revoked or aborted, or one that shares its resources was.
    bool is_stopped() const { return shared_->stopped; }
    bool is_spoiled() const { return shared_->stopped && !stopped_; }  // not by its own end
    bool blocks() const { return seat_.config.blocking; }
    bool has_shared_work() const { return shared_->launched != shared_->completed; }
    bool has_work() const { return pending_ != nullptr || launched_ != completed_; }
    bool is_in_a_graph() const { return recorded_ > 0; }

    // Runs `work` on the background thread; in progress until it returns.
    void in_background(std::function<void()> work);
    void join_background();
    // Meets the other ranks. Ends early once `stopped`.
    void bring_up(const std::atomic<bool>& stopped);
    const std::atomic<bool>& aborted() const { return shared_->aborted; }
    void allow_children() { shared_->child_stopped = aborted().load(); }
    const std::atomic<bool>& child_stopped() const { return shared_->child_stopped; }
    const std::shared_ptr<Shared>& shared() const { return shared_; }
    Region* region() const { return region_.get(); }
    Place place() const { return {region_.get(), seat_.rank, seat_.ranks, &shared_->stopped}; }

    // Puts the operations on the stream as one piece of work, now or some polls later.
    ncclResult_t launch(std::vector<Operation> operations, CUstream_st* stream);
    ncclResult_t poll();  // what GetAsyncError says
    ncclResult_t error() const { return static_cast<ncclResult_t>(error_.load()); }
    std::string error_text() const;
    void set_error(ncclResult_t result, const std::string& text);

    // What Abort and Revoke do first, beside a thread that is inside: what waits here ends.
    void stop(bool for_abort);
    void finalize();
    bool is_quiescent();  // after finalize(): no work here, and all ranks have come as far
    void revoke();
    void abort_work();  // and waits until it has come to its end on its streams
    void leave();       // nothing runs, or it is stopped
    void abort();
    void free() { freed_ = true; }

    // The reductions that a caller has made: handles from ncclNumOps on.
    ncclRedOp_t add_reduction(const Reduction& reduction);
    std::optional<Reduction> find_reduction(ncclRedOp_t op) const;
    bool remove_reduction(ncclRedOp_t op);

private:
    struct Launch {
        std::shared_ptr<Communicator> communicator;
        CUstream_st* stream;
        std::uint64_t turn;
        std::vector<Operation> operations;
        std::chrono::microseconds delay;  // of each operation
    };

    RankEntry& entry(int rank) const { return region_->rank[static_cast<std::size_t>(rank)]; }
    bool claim_entry();
    bool agrees_with_peers();
    void watch_peers();
    bool peer_is_gone() const;
    bool wait_until_due(std::chrono::steady_clock::time_point due);
    ncclResult_t put_when_due(std::unique_ptr<Launch> launch,
                              std::chrono::steady_clock::time_point due);
    void put(std::unique_ptr<Launch> launch);
    static void run(void* launch);
    // Of what is captured: the operations as they were called, numbered anew in each launch of the
    // graph. NCCL's finalize waits until it is gone.
    struct Recorded {
        std::shared_ptr<Communicator> communicator;
        CUstream_st* stream;
        std::vector<Operation> operations;
    };
    static void* prepare(void* recorded);
    static void release(void* recorded);
    std::unique_ptr<Launch> number(std::vector<Operation> operations, CUstream_st* stream);
    bool run_operations(const Launch& launch);
    bool start(const Operation& operation, std::chrono::microseconds delay, const Place& place);

    const Seat seat_;
    const ncclUniqueId id_;
    std::shared_ptr<Region> region_;
    std::thread background_;
    std::atomic<bool> in_background_ = false;
    const std::shared_ptr<Shared> shared_;
    std::atomic<bool> stopped_ = false;     // by its own Revoke or Abort
    std::atomic<int> running_ = 0;          // pieces of work on streams right now
    std::atomic<std::uint64_t> ended_ = 0;  // pieces of work, in whatever way
    std::atomic<std::uint64_t> completed_ = 0;
    std::atomic<bool> freed_ = false;
    std::atomic<int> recorded_ = 0;  // in graphs that exist
    std::atomic<int> error_ = ncclSuccess;
    mutable std::mutex text_mutex_;
    std::string text_;

    // Of the calling thread.
    std::uint64_t launched_ = 0;
    std::uint64_t operations_ = 0;
    std::uint64_t collectives_ = 0;
    bool finalizing_ = false;
    bool revoked_ = false;
    std::unique_ptr<Launch> pending_;
    int polls_left_ = 0;
    std::chrono::steady_clock::time_point due_;
    std::vector<std::optional<Reduction>> reductions_;
    std::vector<int> peer_fds_;  // of other processes
    std::optional<std::chrono::steady_clock::time_point> gone_since_;
};

}  // namespace stand_in
