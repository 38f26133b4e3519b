// Work: an asynchronous operation of a process group, as torch.distributed.Work. The memory that it
// borrows is in flight until it is done, so the destructor waits for what nobody waits for.
#pragma once

#include <ddp/export.hpp>
#include <ddp/stream.hpp>

#include <memory>

namespace ddp {

namespace process_group {
class Operation;
}

class [[nodiscard]] DDP_API Work {
public:
    Work() noexcept;                                                    // nothing in flight: done
    explicit Work(std::unique_ptr<process_group::Operation>) noexcept;  // made by a ProcessGroup
    Work(Work&&) noexcept;
    Work& operator=(Work&&) noexcept;  // waits for what it held, as the destructor
    // Waits, unless a stream does. An error found here is kept: the group is failed and its next
    // call throws it.
    ~Work();

    // Blocks until the operation is done on this rank; throws what went wrong: PeerError,
    // TimeoutError, UsageError when the ranks called different operations. A second call returns at
    // once (and throws again what was thrown). Not while another thread destroys the group: that
    // waits for what is in flight, but not for threads that come from it, or to it, here.
    void wait();
    // Lets `stream` wait instead of the host: what is put there from now on runs after the
    // operation, so that its memory is freed in the order of that stream. An error shows at the
    // group's next call. For CPU memory the same as wait().
    void wait(Stream stream);
    // Whether it has ended, well or not; false for one that went into a CUDA graph. Never blocks.
    bool is_completed() const noexcept;

private:
    std::unique_ptr<process_group::Operation> operation_;
};

}  // namespace ddp
