#include "backends/gloo/transport/ucx_worker.hpp"

#include "base/process/background_thread.hpp"

#include <ddp/error.hpp>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

namespace ddp::gloo {
namespace {

// Every port of RDMA there is: ",mlx5_0:1".
std::string ports_of_rdma() {
    std::string ports;
    std::error_code error;
    for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
        const auto folder = device.path() / "ports";
        for (const auto& port : std::filesystem::directory_iterator(folder, error)) {
            ports +=
                "," + device.path().filename().string() + ":" + port.path().filename().string();
        }
    }
    return ports;
}

}  // namespace

void UcxWorker::check(ucs_status_t status, const std::string& what) const {
    if (status == UCS_OK) return;
    throw BackendError("ucx", status, what + ": " + library_.status_string(status));
}

UcxWorker::UcxWorker(const std::string& interface) : library_(UcxLibrary::load()) {
    const base::SignalBlock no_signals;  // for UCX's thread
    ucp_config_t* read = nullptr;
    check(library_.setup.config_read(nullptr, nullptr, &read), "cannot read UCX's environment");
    const std::unique_ptr<ucp_config_t, decltype(library_.setup.config_release)> config(
        read, library_.setup.config_release);
    const auto set = [&](const char* variable, const char* option, const std::string& value) {
        if (std::getenv(variable) != nullptr) return;
        check(library_.setup.config_modify(config.get(), option, value.c_str()), variable);
    };
    // Before 1.17 UCX knows TCP's own options without their prefix.
    const std::string tcp = library_.version() < std::array<unsigned, 3>{1, 17, 0} ? "" : "TCP_";
    const auto set_of_tcp = [&](const char* variable, const char* option, const char* value) {
        set(variable, (tcp + option).c_str(), value);
    };
    set("UCX_NET_DEVICES", "NET_DEVICES", interface + ports_of_rdma());
    set("UCX_TLS", "TLS", "^sm");  // what stays on a host has its own backend
    // A flush is over when the bytes are with the kernel, whatever the peers do.
    set("UCX_FLUSH_WORKER_EPS", "FLUSH_WORKER_EPS", "n");
    // Who is silent is found by launchers, and by the kernel's own probes.
    set("UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "inf");
    // The answer of a rendezvous waits behind what this rank itself sends: half of a full duplex
    // line. And the memory of one that has begun would not be free when a wait is given up.
    set("UCX_RNDV_THRESH", "RNDV_THRESH", "inf");
    // A peer that dies while a part of a message without a copy waits for the kernel ends this
    // process: UCX 1.13 to 1.22 complete it twice. So all is copied, in large parts.
    set("UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "inf");
    set_of_tcp("UCX_TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "256k");
    set_of_tcp("UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "256k");  // what one recv takes at most
    set_of_tcp("UCX_TCP_CONN_NB", "CONN_NB", "y");  // a connection may take longer than a rank has
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    check(library_.setup.init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config.get(),
                                      &context_),
          "cannot use " + interface);
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucs_status_t status = library_.worker.create(context_, &worker, &worker_);
    if (status == UCS_OK) status = library_.worker.get_efd(worker_, &event_descriptor_);
    if (status == UCS_OK) return;
    if (worker_ != nullptr) library_.worker.destroy(worker_);
    library_.setup.cleanup(context_);
    check(status, "cannot use " + interface);
}

UcxWorker::~UcxWorker() {
    library_.worker.destroy(worker_);
    library_.setup.cleanup(context_);
}

std::string UcxWorker::wire_version() const {
    const auto [major, minor, patch] = library_.version();
    std::string text =
        "UCX " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
    for (const char* name : {"UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"}) {
        const char* const value = std::getenv(name);
        if (value != nullptr) text += std::string(", ") + name + "=" + value;
    }
    return text;
}

std::string UcxWorker::address() const {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    check(library_.worker.get_address(worker_, &address, &bytes), "no address");
    std::string text(reinterpret_cast<const char*>(address), bytes);
    library_.worker.release_address(worker_, address);
    return text;
}

}  // namespace ddp::gloo
