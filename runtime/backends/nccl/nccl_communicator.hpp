// Communicator: one NCCL communicator, and two threads that make it, end it or wait for it. States:
//
//   idle -> joining -> ready -> left                 init, launches, leave
//              |         |
//              +----+----+-> cancelled -> aborted    cancel from any thread, then abort
//              +-> refused                           NCCL said no
//
// NCCL allows one thread at a time. Invariant: every call is made under the mutex, which is one for
// all that share resources, but for the first half of abort. init, leave and abort run on the
// communicator's threads, launches on their callers'. From NCCL 2.22 on communicators block: NCCL
// holds the thread of a launch or an init until it is done, and starts none of its own for it. What
// is to be ended then is inside NCCL with the mutex: abort sets NCCL's flags beside it, which lets
// it return, and frees nothing until it has. Older ones cannot be ended in two halves: they do not
// block, what they do in the background is polled, and the poll looks at the cancel flag; a program
// that is lent one of those (ddp/nccl.hpp) returns by itself.
#pragma once

#include "backends/nccl/nccl_library.hpp"
#include "tensor/device/current_gpu.hpp"
#include "tensor/device/device_api.hpp"

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace ddp::nccl {

class Communicator {
public:
    // Starts the threads. `lends`: shares its resources with those that are split from it
    // (can_share). Throws SystemError.
    Communicator(const NcclLibrary& library, device::DeviceApi& api, int device,
                 bool lends = false);
    // Without leave() or abort() before: abort, as short as it can be.
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    // Of what is shared only one thread may be inside NCCL at a time, and it must be let go as
    // quickly as one communicator is: from NCCL 2.22 on.
    static bool can_share(const NcclLibrary& library);
    // One for ranks of this one's group, which lends: with its resources, its mutex and its
    // threads; not ready. It does not outlive the first of those that share, which ends them all.
    std::unique_ptr<Communicator> make_sharer() const;
    // Collective over this one's ranks: makes ready the sharers of one color, ranks by key. Each
    // rank has a color: NCCL crashes on one that has none if a split does not succeed. Under the
    // mutex. Throws as launch_group().
    void split(Communicator& sharer, int color, int key);

    struct GroupRank {
        int rank = 0;
        int ranks = 1;
    };
    // Joins the others, in the background.
    void start_init(const ncclUniqueId& id, GroupRank own);
    // Whether it is ready, after at most `wait`. Throws BackendError when NCCL refused.
    bool wait_ready(std::chrono::milliseconds wait);

    // Calls `enqueue` between ncclGroupStart and ncclGroupEnd, and returns when NCCL has launched
    // all of it, or when the communicator is ended: it knows no deadline. Under the mutex and with
    // the device, which the caller has: see Launch. Throws BackendError; Cancelled when it was.
    struct Cancelled {};
    using Enqueue = std::function<void(ncclComm_t)>;
    void launch_group(const Enqueue& enqueue);
    void require_usable() const;  // throws Cancelled
    bool blocks() const noexcept;
    // Until NCCL has launched what the program has called itself (handle_for_program), before any
    // other call. Under the mutex. Throws as launch_group().
    void wait_for_program();
    // Tells NCCL of memory that its operations may use as it is: as a symmetric window where it has
    // windows (collective then: all ranks, the same bytes), else as a buffer. What
    // deregister_memory() takes; null: NCCL does without. Under the mutex. Throws as
    // launch_group().
    void* register_memory(void* memory, std::size_t bytes);
    // Before the memory goes, when nothing runs on it. Waits for the mutex. One that has ended, or
    // is about to, lets go of all by itself.
    void deregister_memory(void* handle) noexcept;
    // Waits for the mutex, and puts the device in place.
    class Launch {
    public:
        explicit Launch(Communicator& communicator);

    private:
        std::unique_lock<std::mutex> lock_;
        device::CurrentGpu device_;
    };
    // Throws BackendError unless it is a success, or in progress.
    void check(ncclResult_t result, const char* call) const;

    // What went wrong in the background; nothing, also while another thread is inside NCCL.
    std::exception_ptr find_async_error();  // a BackendError

    // What follows is of all that share, and called of the first.

    // From here on every poll ends. Any thread.
    void cancel() noexcept;
    // After cancel: stops what is in flight. Whether that was done within `limit`; if not, nothing
    // but the end of the process is left.
    bool abort(std::chrono::milliseconds limit) noexcept;
    // The regular end, nothing being in flight, in the order in which they were made. The others
    // may leave later: whether it was done within `limit`; if not, cancel and abort it.
    bool leave(std::chrono::milliseconds limit) noexcept;

    // From here on operations may be in graphs. NCCL frees what these refer to when the last of
    // them is destroyed, for which abort and leave do not wait: abort returns when nobody is inside
    // NCCL any more, and what it has launched ends.
    void note_graph() noexcept;
    bool is_in_graphs() const noexcept;

    ncclComm_t handle() const noexcept;
    // The same for the program's own calls. Under the mutex.
    ncclComm_t handle_for_program() noexcept;

private:
    struct Tasks;
    struct Core;
    struct Joint;  // shared with the threads, which may be stuck inside NCCL when this goes
    Communicator(std::shared_ptr<Joint> joint, std::shared_ptr<Core> core)
        : joint_(std::move(joint)), core_(std::move(core)) {}
    bool has_left() const;
    void wait_while_in_progress(ncclResult_t now, const char* call) const;
    bool run_on_thread(std::function<void()> task, std::chrono::milliseconds limit) noexcept;

    std::shared_ptr<Joint> joint_;
    std::shared_ptr<Core> core_;
    bool has_threads_ = false;  // the first of those that share
};

}  // namespace ddp::nccl
