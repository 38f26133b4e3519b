#include "backends/gloo/transport/ucx_library.hpp"

#include "base/process/background_thread.hpp"
#include "base/sanitizers.hpp"

#include <ddp/error.hpp>

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <vector>

#ifdef DDP_SANITIZES_ADDRESSES
// Clang 14's leak checker misreads the thread-local memory of libraries that are loaded late, such
// as libucs, and ends the process.
extern "C" const char* __lsan_default_options();                                        // NOLINT
extern "C" const char* __lsan_default_options() { return "intercept_tls_get_addr=0"; }  // NOLINT
#endif

namespace ddp::gloo {
namespace {

// UCX takes over the program's signals as it is loaded, unless UCX_HANDLE_ERRORS says otherwise.
class SignalHandlerGuard {
public:
    SignalHandlerGuard() {
        for (std::size_t i = 0; i < signals.size(); ++i) {
            ::sigaction(signals[i], nullptr, &before_[i]);
        }
    }
    ~SignalHandlerGuard() {
        for (std::size_t i = 0; i < signals.size(); ++i) {
            ::sigaction(signals[i], &before_[i], nullptr);
        }
    }
    SignalHandlerGuard(const SignalHandlerGuard&) = delete;
    SignalHandlerGuard& operator=(const SignalHandlerGuard&) = delete;

private:
    static constexpr std::array<int, 6> signals{SIGHUP, SIGILL, SIGBUS, SIGFPE, SIGSEGV, SIGABRT};
    std::array<struct sigaction, signals.size()> before_{};
};

// What UCX reads in the environment as it is loaded, where that does not say otherwise. Threads
// that look something up meanwhile find it in either: the environment itself is left alone.
class ProvisionalEnvironment {
public:
    explicit ProvisionalEnvironment(std::initializer_list<const char*> settings) {
        static std::vector<char*> all;  // some thread may still look at it
        all.clear();
        for (char** one = before_; one != nullptr && *one != nullptr; ++one) all.push_back(*one);
        for (const char* const setting : settings) {
            const std::string name(setting, std::strchr(setting, '='));
            if (std::getenv(name.c_str()) == nullptr) all.push_back(const_cast<char*>(setting));
        }
        all.push_back(nullptr);
        ours_ = all.data();
        ::environ = ours_;
    }
    ~ProvisionalEnvironment() {
        if (::environ == ours_) ::environ = before_;
    }
    ProvisionalEnvironment(const ProvisionalEnvironment&) = delete;
    ProvisionalEnvironment& operator=(const ProvisionalEnvironment&) = delete;

private:
    char** const before_ = ::environ;
    char** ours_ = nullptr;
};

std::string loader_says() {
    const char* text = ::dlerror();
    return text != nullptr ? text : "no reason given";
}

}  // namespace

std::array<unsigned, 3> UcxLibrary::version() const {
    std::array<unsigned, 3> version{};
    setup.get_version(&version[0], &version[1], &version[2]);
    return version;
}

UcxLibrary UcxLibrary::load(const std::string& name) {
    const SignalHandlerGuard handlers;
    const ProvisionalEnvironment environment{
        // It would replace the program's mmap, mremap and others by its own, to learn which memory
        // goes; that mremap forgets its fifth argument. Nothing here registers memory.
        "UCX_MEM_EVENTS=no",
        // What fails is told by the group, with the rank; UCX would print to standard output.
        "UCX_LOG_LEVEL=fatal", "UCX_WARN_UNUSED_ENV_VARS=n"};
    const base::SignalBlock no_signals;  // for threads that it starts as it is loaded
    // Never unloaded: its threads may outlive any group.
    void* const file = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (file == nullptr) {
        throw BackendError("ucx", 0,
                           "cannot load libucp: " + loader_says() +
                               "; install it on this host (Debian: libucx0), or name its folder "
                               "in LD_LIBRARY_PATH");
    }
    UcxLibrary library;
    const auto find = [&](auto& function, const char* symbol) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(file, symbol));
        if (function == nullptr)
            throw BackendError("ucx", 0, "libucp is too old: " + loader_says());
    };
    find(library.setup.get_version, "ucp_get_version");
    find(library.setup.config_read, "ucp_config_read");
    find(library.setup.config_modify, "ucp_config_modify");
    find(library.setup.config_release, "ucp_config_release");
    find(library.setup.init_version, "ucp_init_version");
    find(library.setup.cleanup, "ucp_cleanup");
    find(library.worker.create, "ucp_worker_create");
    find(library.worker.destroy, "ucp_worker_destroy");
    find(library.worker.get_address, "ucp_worker_get_address");
    find(library.worker.release_address, "ucp_worker_release_address");
    find(library.worker.progress, "ucp_worker_progress");
    find(library.worker.flush_nbx, "ucp_worker_flush_nbx");
    find(library.worker.get_efd, "ucp_worker_get_efd");
    find(library.worker.arm, "ucp_worker_arm");
    find(library.worker.signal, "ucp_worker_signal");
    find(library.message.ep_create, "ucp_ep_create");
    find(library.message.tag_send_nbx, "ucp_tag_send_nbx");
    find(library.message.tag_recv_nbx, "ucp_tag_recv_nbx");
    find(library.request.check_status, "ucp_request_check_status");
    find(library.request.cancel, "ucp_request_cancel");
    find(library.request.free, "ucp_request_free");
    find(library.status_string, "ucs_status_string");
    return library;
}

const UcxLibrary& UcxLibrary::load() {
    static const UcxLibrary library = load(DDP_UCX_SONAME);
    return library;
}

}  // namespace ddp::gloo
