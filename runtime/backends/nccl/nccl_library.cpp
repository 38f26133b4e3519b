#include "backends/nccl/nccl_library.hpp"

#include <ddp/error.hpp>

#include <dlfcn.h>

#include <cstdlib>

namespace ddp::nccl {
namespace {

constexpr const char* soname = "libnccl.so.2";
constexpr const char* variable = "DDP_NCCL_LIBRARY";

template <class Visit>
void visit_required(NcclLibrary& library, const Visit& visit) {
    visit("ncclGetVersion", library.get_version);
    visit("ncclGetErrorString", library.get_error_string);
    visit("ncclGetLastError", library.get_last_error);
    auto& communicator = library.communicator;
    visit("ncclGetUniqueId", communicator.get_unique_id);
    visit("ncclCommInitRankConfig", communicator.init_rank_config);
    visit("ncclCommGetAsyncError", communicator.get_async_error);
    visit("ncclCommFinalize", communicator.finalize);
    visit("ncclCommDestroy", communicator.destroy);
    visit("ncclCommAbort", communicator.abort);
    auto& operations = library.operations;
    visit("ncclGroupStart", operations.group_start);
    visit("ncclGroupEnd", operations.group_end);
    visit("ncclAllReduce", operations.all_reduce);
    visit("ncclReduce", operations.reduce);
    visit("ncclBroadcast", operations.broadcast);
    visit("ncclAllGather", operations.all_gather);
    visit("ncclReduceScatter", operations.reduce_scatter);
    visit("ncclSend", operations.send);
    visit("ncclRecv", operations.recv);
    visit("ncclRedOpCreatePreMulSum", operations.red_op_create_premul_sum);
    visit("ncclRedOpDestroy", operations.red_op_destroy);
}

template <class Visit>
void visit_optional(NcclLibrary& library, const Visit& visit) {
    visit("ncclCommSplit", library.communicator.split);
    visit("ncclCommRevoke", library.communicator.revoke);
    visit("ncclMemAlloc", library.memory.alloc);
    visit("ncclMemFree", library.memory.free);
    visit("ncclCommRegister", library.memory.register_buffer);
    visit("ncclCommDeregister", library.memory.deregister_buffer);
    visit("ncclCommWindowRegister", library.memory.register_window);
    visit("ncclCommWindowDeregister", library.memory.deregister_window);
}

[[noreturn]] void refuse(const std::string& why, const std::string& remedy) {
    throw BackendError("nccl", 0, why + "; " + remedy);
}

int major_of(int version) { return version >= 10000 ? version / 10000 : version / 1000; }

void require_version(const NcclLibrary& library) {
    if (major_of(library.version) == NCCL_MAJOR) return;
    refuse(library.name + " is version " + version_text(library.version) + ", this build needs " +
               std::to_string(NCCL_MAJOR) + ".x",
           std::string("name another file in ") + variable);
}

// Never unloaded: it has threads of its own, which outlive communicators. NCCL calls its own public
// functions by their names. Where the program has those of another one (LibTorch brings one, as a
// library or within one of its own) it would find these, whose communicators look otherwise
// ("corrupted comm object"): its own come first then.
void* open(const std::string& name) {
    const bool is_beside_another = ::dlsym(RTLD_DEFAULT, "ncclGetVersion") != nullptr;
    const int order = is_beside_another ? RTLD_DEEPBIND : 0;
    return ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | order);
}

}  // namespace

std::string version_text(int version) {
    const int rest = version % (version >= 10000 ? 10000 : 1000);  // 2.9 began the longer form
    return std::to_string(major_of(version)) + "." + std::to_string(rest / 100) + "." +
           std::to_string(rest % 100);
}

NcclLibrary NcclLibrary::load(const std::string& path) {
    NcclLibrary library;
    library.name = path.empty() ? soname : path;
    void* const handle = open(library.name);
    if (handle == nullptr) {
        const char* const why = ::dlerror();
        refuse(
            "cannot load " + library.name + " (" + (why != nullptr ? why : "no reason given") + ")",
            path.empty()
                ? std::string("install NCCL 2 on this host, or name its file in ") + variable
                : std::string(variable) + " must name NCCL's file");
    }
    std::string missing;
    const auto resolve = [&]<class Function>(const char* symbol, Function*& function) {
        function = reinterpret_cast<Function*>(::dlsym(handle, symbol));
    };
    visit_optional(library, resolve);
    visit_required(library, [&](const char* symbol, auto& function) {
        resolve(symbol, function);
        if (function == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(symbol);
    });
    if (library.get_version != nullptr && library.get_version(&library.version) == ncclSuccess) {
        require_version(library);  // first: it says more than what is missing
    }
    if (!missing.empty()) {
        refuse(library.name + " has no " + missing,
               std::string("it is too old (2.14 is the oldest), or not NCCL: name another file "
                           "in ") +
                   variable);
    }
    return library;
}

const NcclLibrary& NcclLibrary::load() {
    static const NcclLibrary library = [] {
        const char* const path = std::getenv(variable);
        return load(path != nullptr ? std::string(path) : std::string());
    }();
    return library;
}

}  // namespace ddp::nccl
