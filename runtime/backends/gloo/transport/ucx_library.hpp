// UcxLibrary: libucp and libucs, loaded by the first group that uses them: they start threads and
// look at all devices of the host when they are used. Invariant: the program's signal handlers,
// logs and memory are left alone (UCX's own defaults change all three).
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <string>

namespace ddp::gloo {

// Named as UCX names them, without what all of a group begin with.
struct UcxSetupCalls {  // ucp_
    decltype(&::ucp_get_version) get_version = nullptr;
    decltype(&::ucp_config_read) config_read = nullptr;
    decltype(&::ucp_config_modify) config_modify = nullptr;
    decltype(&::ucp_config_release) config_release = nullptr;
    decltype(&::ucp_init_version) init_version = nullptr;
    decltype(&::ucp_cleanup) cleanup = nullptr;
};
struct UcxWorkerCalls {  // ucp_worker_
    decltype(&::ucp_worker_create) create = nullptr;
    decltype(&::ucp_worker_destroy) destroy = nullptr;
    decltype(&::ucp_worker_get_address) get_address = nullptr;
    decltype(&::ucp_worker_release_address) release_address = nullptr;
    decltype(&::ucp_worker_progress) progress = nullptr;
    decltype(&::ucp_worker_flush_nbx) flush_nbx = nullptr;
    decltype(&::ucp_worker_get_efd) get_efd = nullptr;
    decltype(&::ucp_worker_arm) arm = nullptr;
    decltype(&::ucp_worker_signal) signal = nullptr;
};
struct UcxMessageCalls {  // ucp_
    decltype(&::ucp_ep_create) ep_create = nullptr;
    decltype(&::ucp_tag_send_nbx) tag_send_nbx = nullptr;
    decltype(&::ucp_tag_recv_nbx) tag_recv_nbx = nullptr;
};
struct UcxRequestCalls {  // ucp_request_
    decltype(&::ucp_request_check_status) check_status = nullptr;
    decltype(&::ucp_request_cancel) cancel = nullptr;
    decltype(&::ucp_request_free) free = nullptr;
};

struct UcxLibrary {
    UcxSetupCalls setup;
    UcxWorkerCalls worker;
    UcxMessageCalls message;
    UcxRequestCalls request;
    decltype(&::ucs_status_string) status_string = nullptr;

    std::array<unsigned, 3> version() const;

    // Throws BackendError: what is missing.
    static const UcxLibrary& load();
    static UcxLibrary load(const std::string& name);
};

}  // namespace ddp::gloo
