// UcxWorker: UCX's context and worker of one rank in one group, on the network interface of that
// group. Not of a world of one.
#pragma once

#include "backends/gloo/transport/ucx_library.hpp"

#include <string>

namespace ddp::gloo {

class UcxWorker {
public:
    // Throws BackendError.
    explicit UcxWorker(const std::string& interface);
    ~UcxWorker();
    UcxWorker(const UcxWorker&) = delete;
    UcxWorker& operator=(const UcxWorker&) = delete;

    const UcxLibrary& library() const { return library_; }
    ucp_worker_h handle() const { return worker_; }
    int event_descriptor() const { return event_descriptor_; }
    std::string address() const;  // binary, for the other ranks
    // What must be the same on ranks that connect, for people: a receiver of shorter segments than
    // the sender's would write beyond its own.
    std::string wire_version() const;

private:
    void check(ucs_status_t status, const std::string& what) const;

    const UcxLibrary& library_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    int event_descriptor_ = -1;
};

}  // namespace ddp::gloo
