// NCCL's functions on memory.
#include "standin_nccl/handle.hpp"
#include "standin_nccl/meeting.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

// What ncclWindow_t points to, and what a registration's handle is.
struct ncclWindow_vidmem {
    ncclComm_t comm;
    const std::byte* memory;
};

using stand_in::Call;
using stand_in::Communicator;
using stand_in::failed;
using stand_in::Fault;
using stand_in::FaultKind;
using stand_in::misuse;
using stand_in::Needs;
using stand_in::Note;

namespace {
constexpr std::uint64_t window_alignment = NCCL_WIN_REQUIRED_ALIGNMENT;

// The memory that ncclMemAlloc has made, and what communicators know of.
class Registry {
public:
    ncclWindow_t add(ncclComm_t comm, const void* memory) {
        const std::lock_guard lock(mutex_);
        known_.push_back(std::make_unique<ncclWindow_vidmem>(
            ncclWindow_vidmem{comm, static_cast<const std::byte*>(memory)}));
        return known_.back().get();
    }
    bool remove(ncclComm_t comm, const void* handle) {
        const std::lock_guard lock(mutex_);
        return std::erase_if(known_, [&](const auto& one) {
                   return one.get() == handle && one->comm == comm;
               }) == 1;
    }
    void add_allocation(const void* memory, std::size_t size) {
        const std::lock_guard lock(mutex_);
        allocations_[static_cast<const std::byte*>(memory)] = size;
    }
    // Unless a communicator that lives knows of any of it.
    bool remove_allocation(const void* memory) {
        const std::lock_guard lock(mutex_);
        std::erase_if(known_, [](const auto& one) { return one->comm->gone.load(); });
        const auto* const begin = static_cast<const std::byte*>(memory);
        const auto found = allocations_.find(begin);
        const std::size_t size = found == allocations_.end() ? 1 : found->second;
        const auto is_inside = [&](const auto& one) {
            return !std::less<>{}(one->memory, begin) && std::less<>{}(one->memory, begin + size);
        };
        if (std::ranges::any_of(known_, is_inside)) return false;
        if (found != allocations_.end()) allocations_.erase(found);
        return true;
    }
    // Where memory lies in what ncclMemAlloc has made; nothing: it is other memory.
    std::optional<std::uint64_t> offset(const void* memory) {
        const std::lock_guard lock(mutex_);
        const auto* const begin = static_cast<const std::byte*>(memory);
        auto found = allocations_.upper_bound(begin);
        if (found == allocations_.begin()) return std::nullopt;
        --found;
        const auto offset = static_cast<std::uint64_t>(begin - found->first);
        return offset < found->second ? std::optional(offset) : std::nullopt;
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<ncclWindow_vidmem>> known_;
    std::map<const std::byte*, std::size_t, std::less<>> allocations_;
};
Registry& registry() {
    static Registry* const all = new Registry;  // communicators may outlive static objects
    return *all;
}

std::string text_of(const Note& note) {
    return std::to_string(note.bytes) + " bytes at " + std::to_string(note.offset) +
           " of their allocation, flags " + std::to_string(note.flags);
}

// Whether all ranks have come, with the same.
bool meet_for_window(Communicator& self, const Note& own) {
    const stand_in::Place place = self.place();
    if (const auto fault = stand_in::knobs().fault(place.rank, Fault::in_window)) {
        if (fault->kind == FaultKind::die) ::kill(::getpid(), SIGKILL);
        if (fault->kind == FaultKind::error) {
            self.set_error(fault->result, "as the test has asked");
        }
        return place.hang();
    }
    std::vector<int> ranks(static_cast<std::size_t>(place.ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::string difference;
    const auto look = [&](int rank, const Note& note) {
        if (text_of(note) != text_of(own)) {
            difference = "ncclCommWindowRegister: rank " + std::to_string(place.rank) + " has " +
                         text_of(own) + ", rank " + std::to_string(rank) + " " + text_of(note);
        }
        return true;
    };
    if (!meet(place, stand_in::Meeting::window, ranks, own, look)) return false;
    if (difference.empty()) return true;
    self.set_error(misuse(difference), difference);
    return false;
}

ncclResult_t register_window(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                             int flags) {
    const Call call("ncclCommWindowRegister", comm, Needs::work);
    if (call.refused()) return call.result();
    if (win == nullptr) return failed(ncclInvalidArgument, "ncclCommWindowRegister: no window");
    const int version = stand_in::knobs().version;
    const bool is_nothing = buff == nullptr || size == 0;
    if (is_nothing && version < 22902) return ncclSuccess;  // and *win stays as it was
    *win = nullptr;
    if (is_nothing) return failed(ncclInvalidArgument, "ncclCommWindowRegister: nothing");
    const auto fault = stand_in::knobs().fault(call->seat().rank, Fault::in_window);
    if (fault && fault->kind == FaultKind::fail) {
        return failed(fault->result, "as the test has asked");
    }
    if (!owns(call, buff, size)) return misuse("ncclCommWindowRegister: not the device's memory");
    if (!stand_in::knobs().symmetric) {
        if (version < 22902) *win = registry().add(comm, buff);
        return ncclSuccess;
    }
    const auto offset = registry().offset(buff);
    if (!offset) {
        return failed(ncclUnhandledCudaError,
                      "ncclCommWindowRegister: the memory is not of ncclMemAlloc");
    }
    if (*offset % window_alignment != 0) {
        return failed(ncclInvalidArgument, "ncclCommWindowRegister: the memory is not aligned");
    }
    const auto job = [self = call.communicator().get(), comm, buff, win,
                      own = Note{.bytes = size, .offset = *offset, .flags = flags}] {
        if (meet_for_window(*self, own)) *win = registry().add(comm, buff);
    };
    const ncclResult_t result = run_job(call, comm, job);
    const bool is_cut_short = result == ncclSuccess && !stand_in::in_group() && *win == nullptr;
    return is_cut_short ? failed(ncclInternalError, "stopped in ncclCommWindowRegister") : result;
}
}  // namespace

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
    stand_in::count_call("ncclMemAlloc");
    const ddp_host_driver* const driver = stand_in::find_driver();
    if (ptr == nullptr) return failed(ncclInvalidArgument, "ncclMemAlloc: null");
    if (driver == nullptr) return failed(ncclUnhandledCudaError, "there is no driver");
    void* const memory = driver->allocate(size);
    if (memory == nullptr && size > 0) return failed(ncclUnhandledCudaError, "out of memory");
    registry().add_allocation(memory, size);
    *ptr = memory;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void* ptr) {
    stand_in::count_call("ncclMemFree");
    const ddp_host_driver* const driver = stand_in::find_driver();
    if (driver == nullptr) return failed(ncclUnhandledCudaError, "there is no driver");
    if (!registry().remove_allocation(ptr))
        return misuse("ncclMemFree of memory that is registered");
    driver->free(ptr);
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
    const Call call("ncclCommRegister", comm, Needs::work);
    if (call.refused()) return call.result();
    if (!owns(call, buff, size)) return misuse("ncclCommRegister: not memory of the device");
    *handle = registry().add(comm, buff);
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
    const Call call("ncclCommDeregister", comm, Needs::readiness);
    if (call.refused()) return call.result();
    if (handle == nullptr) return ncclSuccess;
    if (!registry().remove(comm, handle)) return misuse("ncclCommDeregister: no such handle");
    return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int winFlags) {
    return stand_in::note_in_group(register_window(comm, buff, size, win, winFlags));
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
    const Call call("ncclCommWindowDeregister", comm, Needs::readiness);
    if (call.refused()) return call.result();
    if (win == nullptr) return ncclSuccess;
    if (!registry().remove(comm, win)) return misuse("ncclCommWindowDeregister: no such window");
    return ncclSuccess;
}
