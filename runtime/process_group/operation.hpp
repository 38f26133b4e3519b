// An asynchronous operation as a Work holds it: what the two queues of a group have in common.
#pragma once

#include "base/recycled.hpp"

#include <ddp/stream.hpp>

namespace ddp::process_group {

class Operation : public base::Recycled {
public:
    virtual ~Operation() = default;
    virtual void wait() = 0;                   // throws its error
    virtual void wait_in(Stream) { wait(); }   // the stream waits, where the memory is a GPU's
    virtual void wait_quietly() noexcept = 0;  // leaves the error to the queue
    virtual bool is_completed() const noexcept = 0;
};

}  // namespace ddp::process_group
