#include "backends/nccl/make_nccl.hpp"

#include "backends/nccl/nccl_backend.hpp"
#include "backends/selection/gpu_files.hpp"
#include "base/log.hpp"
#include "contract/exit_code.hpp"
#include "tensor/device/device_api.hpp"
#include "tensor/device/device_choice.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

namespace ddp::nccl {
namespace {

using namespace std::chrono_literals;

// Under the group's own prefix, which has the numbers of the attempt and of the group in it.
const std::string id_key = "nccl/id";
const std::string failed_key = "nccl/failed";  // set by each rank that cannot connect
const std::string gpu_prefix = "nccl/gpu/";
const std::string choices_prefix = "nccl/choices/";
const std::string outcome_prefix = "nccl/outcome/";

constexpr auto poll_pause = 5ms;
// To hear what the others say, when the deadline has just passed on all of them.
constexpr auto outcome_time = std::chrono::milliseconds{1s};

bool is_set_to_one(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && std::string_view(value) == "1";
}

// Brings the ranks of a group to one communicator: by way of the store they compare GPUs, share the
// unique id of rank 0, and agree on whether all are connected.
class UniqueIdExchange {
public:
    UniqueIdExchange(const Group& group, const base::Deadline& deadline,
                     std::chrono::milliseconds limit)
        : group_(group), deadline_(deadline), limit_(limit), library_(NcclLibrary::load()) {}

    std::shared_ptr<Communicator> connect(bool lends);
    struct Choices {
        Averaging averaging;
        bool registers_memory;
        bool shares;
    };
    Choices agree_on_choices() const;
    std::string name(int rank) const {
        const bool same = group_.job_ranks.empty();
        return "rank " +
               std::to_string(same ? rank : group_.job_ranks[static_cast<std::size_t>(rank)]);
    }
    const NcclLibrary& library() const { return library_; }

private:
    bool alone() const { return group_.ranks == 1; }
    bool await(const StoreKeys& keys, const base::Deadline& deadline) const;
    StoreValues exchange(const std::string& prefix, const std::string& mine,
                         const base::Deadline& deadline) const;
    void require_own_gpus() const;
    ncclUniqueId agree_on_id() const;
    bool another_failed() const { return !alone() && group_.store->check({failed_key}); }
    void connect(Communicator& communicator) const;
    void require_all_connected(const std::string& own_failure) const;

    const Group& group_;
    const base::Deadline& deadline_;
    std::chrono::milliseconds limit_;  // of an abort
    const NcclLibrary& library_;
};

// Throws what the CPU half knows of the others.
void require_no_trouble(const Group& group) {
    if (!group.cpu) return;
    const std::exception_ptr trouble = group.cpu->find_trouble("the start of NCCL");
    if (!trouble) return;
    group.cpu->pass_on_trouble();
    std::rethrow_exception(trouble);
}

// NVIDIA mended the abort in 2.26.2.
void warn_of_version(const NcclLibrary& library) {
    static std::atomic<bool> told = false;
    if (is_set_to_one("DDP_NCCL_SHARE") && !Communicator::can_share(library) &&
        !told.exchange(true)) {
        base::log_warn("nccl", "DDP_NCCL_SHARE needs NCCL 2.22 or newer, and " + library.name +
                                   " is version " + version_text(library.version) +
                                   ": groups share nothing");
    }
    if (library.version != 22501) return;
    base::log_warn("nccl", library.name +
                               " is version 2.25.1, whose ncclCommAbort may hang: a rank that "
                               "fails may then end only after DDP_NCCL_ABORT_TIMEOUT, with exit "
                               "code 83; take another version");
}

// False when the deadline passed first.
bool UniqueIdExchange::await(const StoreKeys& keys, const base::Deadline& deadline) const {
    while (!group_.store->check(keys)) {
        require_no_trouble(group_);
        if (deadline.passed()) return false;
        std::this_thread::sleep_for(poll_pause);
    }
    return true;
}

// By rank; empty when not all of them came.
StoreValues UniqueIdExchange::exchange(const std::string& prefix, const std::string& mine,
                                       const base::Deadline& deadline) const {
    StoreKeys keys;
    for (int rank = 0; rank < group_.ranks; ++rank) keys.push_back(prefix + std::to_string(rank));
    group_.store->set(keys[static_cast<std::size_t>(group_.rank)], mine);
    return await(keys, deadline) ? group_.store->multi_get(keys) : StoreValues{};
}

// A step that fails on one rank alone, after all have agreed: the others hear of it.
template <class Step>
auto tell_of_failure(const Group& group, const Step& step) {
    try {
        return step();
    } catch (...) {
        if (group.cpu) group.cpu->fail();
        throw;
    }
}

// What NCCL would refuse without saying who.
void UniqueIdExchange::require_own_gpus() const {
    if (alone() || is_set_to_one("DDP_OVERSUBSCRIBE_GPU")) return;
    const std::string own =
        tell_of_failure(group_, [&] { return device::device_api().describe(group_.device); });
    const StoreValues gpus = exchange(gpu_prefix, own, deadline_);
    if (gpus.empty()) {
        throw TimeoutError("nccl: not all ranks came to their GPUs within " +
                           base::to_string(deadline_.timeout()) + " (seen from " +
                           name(group_.rank) + "); is one of them stopped?");
    }
    device::require_different_devices(gpus);
}

// Ranks on other GPUs, or with other settings, may prefer another way: all take one.
UniqueIdExchange::Choices UniqueIdExchange::agree_on_choices() const {
    const Averaging own = tell_of_failure(group_, [&] {
        return choose_averaging({.ranks = group_.ranks,
                                 .architecture = device::device_api().architecture(group_.device),
                                 .nvls_setting = std::getenv("NCCL_NVLS_ENABLE"),
                                 .nccl_version = library_.version});
    });
    const bool registers = is_set_to_one("DDP_NCCL_REGISTER");
    const bool shares = is_set_to_one("DDP_NCCL_SHARE") && Communicator::can_share(library_);
    if (alone()) return {own, registers, shares};
    constexpr char scaled = 's', registered = 'r', shared = 'h';
    std::string mine = own == Averaging::by_sum_and_scale ? std::string(1, scaled) : "";
    if (registers) mine += registered;
    if (shares) mine += shared;
    const StoreValues all = exchange(choices_prefix, mine, deadline_);
    if (all.empty()) {
        throw TimeoutError("nccl: not all ranks said how they average within " +
                           base::to_string(deadline_.timeout()) + " (seen from " +
                           name(group_.rank) + "); is one of them stopped?");
    }
    const auto all_have = [&](char choice) {
        return std::ranges::all_of(
            all, [&](const auto& one) { return one.find(choice) != std::string::npos; });
    };
    return {all_have(scaled) ? Averaging::by_sum_and_scale : Averaging::by_nccl,
            all_have(registered), all_have(shared)};
}

// Made by rank 0 through our store, never through NCCL_COMM_ID.
ncclUniqueId UniqueIdExchange::agree_on_id() const {
    ncclUniqueId id{};
    if (group_.rank == 0) {
        const ncclResult_t result = library_.communicator.get_unique_id(&id);
        if (result != ncclSuccess) {
            throw BackendError("nccl", static_cast<int>(result),
                               std::string("ncclGetUniqueId: ") +
                                   library_.get_error_string(result) +
                                   "; NCCL_SOCKET_IFNAME names the network to use");
        }
        if (!alone()) group_.store->set(id_key, std::string(id.internal, sizeof id.internal));
        return id;
    }
    while (!await({id_key}, base::Deadline::after(std::min(50ms, deadline_.left())))) {
        if (another_failed()) return id;  // never used: connect looks first
        if (deadline_.passed()) {
            throw TimeoutError("nccl: no id of the communicator from rank 0 within " +
                               base::to_string(deadline_.timeout()));
        }
    }
    const std::string bytes = group_.store->get(id_key);
    std::memcpy(id.internal, bytes.data(), std::min(bytes.size(), sizeof id.internal));
    return id;
}

std::string describe(const UniqueIdExchange::Choices& choices) {
    return std::string("; avg is ncclAvg") +
           (choices.averaging == Averaging::by_nccl
                ? ""
                : ", from 1 MiB on ncclSum and a scaling, which leaves NVLS on") +
           (choices.registers_memory ? "; memory is registered" : "") +
           (choices.shares ? "; groups that are split from it share its resources" : "");
}

void UniqueIdExchange::connect(Communicator& communicator) const {
    const ncclUniqueId id = agree_on_id();
    if (another_failed()) return;
    communicator.start_init(id, {group_.rank, group_.ranks});
    while (!communicator.wait_ready(50ms)) {
        require_no_trouble(group_);
        if (another_failed()) return;
        if (deadline_.passed()) {
            throw TimeoutError("nccl: the ranks did not connect within " +
                               base::to_string(deadline_.timeout()) + " (" + name(group_.rank) +
                               " of " + std::to_string(group_.ranks) +
                               "); is one of them stopped? NCCL_DEBUG=INFO tells more");
        }
    }
}

// All ranks throw the same, or none does.
void UniqueIdExchange::require_all_connected(const std::string& own_failure) const {
    StoreValues failures{own_failure};
    if (!alone()) {
        if (!own_failure.empty()) group_.store->set(failed_key, "");
        const auto patience = std::max(deadline_.left(), outcome_time);
        failures = exchange(outcome_prefix, own_failure, base::Deadline::after(patience));
        if (failures.empty()) {
            throw TimeoutError(own_failure.empty() ? "nccl: not all ranks were connected within " +
                                                         base::to_string(deadline_.timeout()) +
                                                         " (seen from " + name(group_.rank) + ")"
                                                   : own_failure);
        }
    }
    std::string list;
    for (std::size_t rank = 0; rank < failures.size(); ++rank) {
        if (failures[rank].empty()) continue;
        list += (list.empty() ? "" : "; ") + name(static_cast<int>(rank)) + ": " + failures[rank];
    }
    if (!list.empty()) throw BackendError("nccl", 0, "the ranks cannot be connected: " + list);
}

std::shared_ptr<Communicator> UniqueIdExchange::connect(bool lends) {
    require_own_gpus();
    auto communicator = tell_of_failure(group_, [&] {
        return std::make_shared<Communicator>(library_, device::device_api(), group_.device, lends);
    });
    try {
        std::string failure;
        try {
            connect(*communicator);
        } catch (const BackendError& error) {
            failure = error.what();
        } catch (const TimeoutError& error) {
            failure = error.what();
        }
        require_all_connected(failure);
    } catch (...) {
        communicator->cancel();
        if (!communicator->abort(limit_)) {
            base::log_error(
                "nccl", name(group_.rank) + ": NCCL's start could not be aborted within " +
                            base::to_string(limit_) + "; the process ends itself (exit code 83)");
            ::_exit(contract::exit_could_not_abort);
        }
        throw;
    }
    return communicator;
}

}  // namespace

GpuSupport find_gpu_support(const WorkerEnv& me) {
    const bool is_real = &device::device_api() == &device::built_in_device_api();
    const std::string missing = backends::describe_missing_driver();
    const bool has_driver = missing.empty();
    if (is_real && !has_driver) {  // nothing is asked, nor loaded
        return {GpuSupport::State::none, missing, 0};
    }
    const device::Probe probe = device::device_api().probe();
    if (probe.devices == 0) {
        return {has_driver ? GpuSupport::State::refused : GpuSupport::State::none, probe.reason, 0};
    }
    try {
        const int device =
            device::choose_device({.local_rank = me.local_rank,
                                   .local_world_size = me.local_world_size,
                                   .visible = probe.devices,
                                   .reason = probe.reason,
                                   .restricted = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr,
                                   .oversubscribed = is_set_to_one("DDP_OVERSUBSCRIBE_GPU")});
        const std::string unfit = device::device_api().why_unfit(device);
        if (!unfit.empty()) return {GpuSupport::State::refused, unfit, 0};
        NcclLibrary::load();
        return {GpuSupport::State::usable, {}, device};
    } catch (const Error& error) {
        return {GpuSupport::State::refused, error.what(), 0};
    }
}

std::unique_ptr<backends::DeviceBackend> make_backend(const Group& group,
                                                      const base::Deadline& deadline) {
    const auto limit = tell_of_failure(group, abort_limit);
    UniqueIdExchange exchange(group, deadline, limit);
    device::DeviceApi& api = device::device_api();
    tell_of_failure(group, [&] {
        api.use(group.device);  // the first call that needs memory
        api.load_kernels();     // later another rank might wait for what this one launches after
    });
    if (group.rank == 0 && !group.shared) warn_of_version(exchange.library());
    const auto choices = exchange.agree_on_choices();
    const auto* const shared = static_cast<const SharedResources*>(group.shared.get());
    auto communicator = shared ? shared->communicator : exchange.connect(choices.shares);
    if (base::log_enabled(base::LogLevel::debug)) {
        base::log_debug("nccl", exchange.library().name + ", version " +
                                    version_text(exchange.library().version) + ", on " +
                                    api.describe(group.device) + describe(choices) +
                                    (shared ? "; with the resources of another group" : ""));
    }
    return tell_of_failure(group, [&] {
        auto family =
            shared ? shared->family
                   : std::make_shared<GroupFamily>(exchange.name(group.rank), limit, communicator);
        return std::make_unique<NcclBackend>(
            NcclBackend::Setup{.library = exchange.library(),
                               .api = api,
                               .device = group.device,
                               .own = {group.rank, group.ranks},
                               .name = exchange.name(group.rank),
                               .cpu = group.cpu,
                               .recorder = group.recorder,
                               .averaging = choices.averaging,
                               .registers_memory = choices.registers_memory,
                               .shares = choices.shares},
            std::move(communicator), std::move(family));
    });
}

}  // namespace ddp::nccl
