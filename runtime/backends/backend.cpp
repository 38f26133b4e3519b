#include "backends/backend.hpp"

#include <ddp/error.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace ddp {

const char* to_string(Backend backend) noexcept {
    switch (backend) {
        case Backend::automatic:
            return "automatic";
        case Backend::shm:
            return "shm";
        case Backend::gloo:
            return "gloo";
        case Backend::nccl:
            return "nccl";
        case Backend::hierarchical:
            return "hierarchical";
    }
    return "unknown";
}

}  // namespace ddp

namespace ddp::backends {

bool all_send(Collective kind) noexcept {
    return kind == Collective::all_reduce || kind == Collective::all_gather ||
           kind == Collective::reduce_scatter || kind == Collective::all_to_all;
}

std::string describe(const Call& call) {
    return contract::describe(contract::CallSignature{.kind = call.kind,
                                                      .dtype = call.dtype,
                                                      .op = call.op.kind,
                                                      .root = call.root,
                                                      .elements = call.elements});
}

std::string describe(const Transfer& transfer) {
    const bool send = transfer.direction == Direction::send;
    return std::string(send ? "send of " : "recv of ") + std::to_string(transfer.bytes) +
           (send ? " bytes to rank " : " bytes from rank ") + std::to_string(transfer.peer);
}

std::string describe(const CallSite& site) {
    const std::string_view file = site.file();
    return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(site.line());
}

void rethrow_at(const CallSite& site) {
    if (site.line() == 0) throw;
    const std::string here = " (this rank's call: " + describe(site) + ")";
    try {
        throw;
    } catch (const UsageError& error) {
        throw UsageError(error.what() + here, error.culprit());
    } catch (const TimeoutError& error) {
        throw TimeoutError(error.what() + here, error.culprit());
    } catch (const PeerError& error) {
        throw PeerError(error.rank(), error.what() + here);
    } catch (const BackendError& error) {
        const std::string text = std::string(error.what()).substr(error.library().size() + 2);
        throw BackendError(error.library(), error.code(), text + here);
    }
}

std::shared_ptr<void> allocate_private(std::size_t bytes) {
    const std::size_t mapped = std::max(bytes, std::size_t{1});
    void* const memory =
        ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        throw SystemError("allocate " + std::to_string(bytes) + " bytes", errno);
    return {memory, [mapped](void* data) { ::munmap(data, mapped); }};
}

}  // namespace ddp::backends
