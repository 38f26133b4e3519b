// replicate and parallel_apply: a module on several devices, and all of them at work at once.
// Sources: torch.nn.parallel.replicate and parallel_apply.
#pragma once

#include <ddp/device_threads.hpp>
#include <ddp/export.hpp>
#include <ddp/module.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp {

namespace data_parallel {

// Throw UsageError, with the name and the cure, for a parameter or buffer that is elsewhere.
DDP_API void require_source_on(const ModuleState& source, const Device& wanted);
DDP_API void require_replica_on(const ModuleState& replica, const Device& wanted);
// The replica's become the source's; UsageError when they do not match.
DDP_API void copy_parameters(const ModuleState& source, const ModuleState& replica);
DDP_API void copy_buffers(const ModuleState& source, const ModuleState& replica);
DDP_API void zero_gradients(const ModuleState& replica);
// Adds up those of every shares-th parameter from `share` on, in the first state. Parameters
// without a gradient (data == nullptr: frozen) are left out; in the first state frozen means in
// all.
DDP_API void add_gradients(std::span<const ModuleState> replicas, std::size_t share,
                           std::size_t shares);

}  // namespace data_parallel

// Replica 0 is the source module itself, on devices[0]: what its forward does to its buffers stays.
// The others are copies that live as long as this, in memory that is allocated once. Borrows the
// module, which must outlive it.
template <Module Net>
class Replicas {
public:
    // As replicate(), but the copies get parameters and buffers at their first update() only.
    Replicas(Net& source, std::vector<Device> devices) : source_(source), threads_(devices) {
        check_source();
        for (std::size_t i = 1; i < devices.size(); ++i) {
            copies_.push_back({std::unique_ptr<Net>(new Net(source.replicate(devices[i])))});
            data_parallel::require_replica_on(state(i), devices[i]);
        }
    }

    std::size_t size() const noexcept { return devices().size(); }                   // replicas
    std::span<const Device> devices() const noexcept { return threads_.devices(); }  // one each
    // On devices()[replica].
    Net& operator[](std::size_t replica) {
        return replica == 0 ? source_ : *copies_[replica - 1].net;
    }

    // The source's parameters are other ones than at the last update.
    void parameters_changed() noexcept { ++version_; }
    // The first `count` replicas get the source's buffers, and its parameters if these have changed
    // since this replica got them.
    void update(std::size_t count) {
        check_source();
        const auto source = state(0);
        if (count < 2 || (source.buffers.empty() && is_up_to_date(count))) return;
        run(count, [&](std::size_t replica) {
            if (replica == 0) return;
            auto& copy = copies_[replica - 1];
            data_parallel::copy_buffers(source, state(replica));
            if (copy.version == version_) return;
            data_parallel::copy_parameters(source, state(replica));
            copy.version = version_;
        });
    }
    // Adds the gradients of the first `count` replicas into the source's, element by element in
    // ddp's one order, the balanced tree over devices, ((0+1)+(2+3))+..., so that each run gives
    // the same bits. Half types are added in float32 and rounded once.
    void add_gradients(std::size_t count) {
        std::vector<data_parallel::ModuleState> states;
        for (std::size_t i = 0; i < count; ++i) states.push_back(state(i));
        run(count, [&](std::size_t share) { data_parallel::add_gradients(states, share, count); });
    }
    // Of a copy; the source's accumulate.
    void zero_gradients(std::size_t replica) {
        if (replica > 0) data_parallel::zero_gradients(state(replica));
    }
    // See DeviceThreads::run.
    void run(std::size_t count, const DeviceThreads::Body& body) { threads_.run(count, body); }
    // The same, and what body(0), body(1), ... return.
    template <class Body>
    auto collect(std::size_t count, const Body& body) {
        using Result = std::decay_t<decltype(body(0))>;
        std::vector<std::optional<Result>> done(count);
        run(count, [&](std::size_t replica) { done[replica].emplace(body(replica)); });
        std::vector<Result> results;
        results.reserve(count);
        for (auto& result : done) results.push_back(std::move(*result));
        return results;
    }

private:
    struct Copy {
        std::unique_ptr<Net> net;
        std::uint64_t version = 0;  // of the parameters that it has; 0: none yet
    };

    data_parallel::ModuleState state(std::size_t replica) {
        return data_parallel::state_of((*this)[replica]);
    }
    void check_source() { data_parallel::require_source_on(state(0), devices()[0]); }
    bool is_up_to_date(std::size_t count) const {
        for (std::size_t i = 1; i < count; ++i) {
            if (copies_[i - 1].version != version_) return false;
        }
        return true;
    }

    Net& source_;
    DeviceThreads threads_;
    std::vector<Copy> copies_;  // of replica 1, 2, ...
    std::uint64_t version_ = 1;
};

// Calls module.replicate() for each device but the first, and copies parameters and buffers, so
// that parallel_apply can follow; after a change of the module's it follows parameters_changed()
// and update(). Throws UsageError for a parameter or buffer that is not on devices[0].
template <Module Net>
Replicas<Net> replicate(Net& module, std::span<const Device> devices) {
    Replicas<Net> replicas{module, {devices.begin(), devices.end()}};
    replicas.update(replicas.size());
    return replicas;
}

// replicas[i].forward(the members of inputs[i]), all at once. As DeviceThreads::run.
template <Module Net, class... Inputs>
requires ForwardsFrom<Net, Inputs...>
auto parallel_apply(Replicas<Net>& replicas, std::span<const std::tuple<Inputs...>> inputs) {
    return replicas.collect(inputs.size(), [&](std::size_t i) {
        const auto forward = [&](const Inputs&... parts) { return replicas[i].forward(parts...); };
        return std::apply(forward, inputs[i]);
    });
}

}  // namespace ddp
