// Averaged gradients and samples of ddp.h.
#include "c_interface/handles.hpp"
#include "c_interface/text_options.hpp"

#include <ddp/error.hpp>

#include <mutex>
#include <string>
#include <unordered_set>

namespace ddp::c_interface {
namespace {

ddp_reducer& given(ddp_reducer* reducer, const char* function) {
    return not_null(reducer, function, "the reducer");
}

ddp_sampler& given(ddp_sampler* sampler, const char* function) {
    return not_null(sampler, function, "the sampler");
}

std::vector<Parameter> parameters_of(const ddp_parameter* parameters, std::size_t count,
                                     const char* function) {
    std::vector<Parameter> result;
    for (const ddp_parameter& one : span_of(parameters, count, function, "the parameters")) {
        TensorView value = view_of(one.value, function);
        TensorView grad = value;
        grad.data = one.grad;
        if (grad.data == nullptr && grad.numel() > 0) refuse_null(function, "a gradient");
        result.push_back({&not_null(one.name, function, "a parameter's name"), value, grad});
    }
    return result;
}

ReducerOptions reducer_options_of(const char* options, const char* function) {
    TextOptions text(function, options);
    ReducerOptions result;
    text.read("bucket_cap_mb", result.bucket_cap_mb);
    text.read("first_bucket_mb", result.first_bucket_mb);
    text.read("find_unused_parameters", result.find_unused_parameters);
    text.read("static_graph", result.static_graph);
    text.read("logical_ranks", result.logical_ranks);
    text.read("checksum_steps", result.checksum_steps);
    text.finish();
    return result;
}

// Never destroyed: threads may outlive main.
struct Claimed {
    std::mutex mutex;
    std::unordered_set<const void*> gradients;
};
Claimed& claimed() {
    static auto* const all = new Claimed;
    return *all;
}

Shard shard_of(int rank, int ranks, const char* function) {
    if (rank < 0 || ranks < 1) {
        throw UsageError(std::string(function) + ": rank " + std::to_string(rank) + " of " +
                         std::to_string(ranks) + " is none");
    }
    return {static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks)};
}

}  // namespace

GradientClaim::GradientClaim(std::span<Parameter> parameters) {
    own_.reserve(parameters.size());
    Claimed& all = claimed();
    const std::lock_guard lock(all.mutex);
    for (Parameter& one : parameters) {
        if (all.gradients.contains(one.grad.data)) {
            one.reducer.attach(&one, [](void* /*owner*/) noexcept {});
        } else if (one.grad.numel() > 0) {
            own_.push_back(one.grad.data);
        }
    }
    all.gradients.insert(own_.begin(), own_.end());
}

GradientClaim::~GradientClaim() {
    Claimed& all = claimed();
    const std::lock_guard lock(all.mutex);
    for (const void* const gradient : own_) all.gradients.erase(gradient);
}

}  // namespace ddp::c_interface

using namespace ddp;
using namespace ddp::c_interface;

extern "C" {

ddp_status ddp_reducer_create(ddp_group* group, const ddp_parameter* parameters, std::size_t count,
                              const char* options, ddp_reducer** reducer) {
    return guarded(__func__, [&](const char* name) {
        ddp_reducer*& result = not_null(reducer, name, "where the reducer goes");
        ProcessGroup& ranks = not_null(group, name, "the group").group;
        result = new ddp_reducer(parameters_of(parameters, count, name), ranks,
                                 reducer_options_of(options, name));
    });
}

// A program in C that gives up has no exception, which tells the reducer that a backward is left.
void ddp_reducer_destroy(ddp_reducer* reducer) {
    try {
        const std::unique_ptr<ddp_reducer> ended(reducer);
        throw 0;
    } catch (int) {  // NOLINT(bugprone-empty-catch): the unwinding was all
    }
}

ddp_status ddp_reducer_start_backward(ddp_reducer* reducer, const std::size_t* unused,
                                      std::size_t count, ddp_stream stream) {
    return guarded(__func__, [&](const char* name) {
        given(reducer, name)
            .reducer.start_backward(span_of(unused, count, name, "the list of parameters"), stream);
    });
}

ddp_status ddp_reducer_mark_ready(ddp_reducer* reducer, std::size_t parameter, ddp_stream stream) {
    return guarded(__func__, [&](const char* name) {
        given(reducer, name).reducer.mark_ready(parameter, stream);
    });
}

ddp_status ddp_reducer_wait(ddp_reducer* reducer, ddp_stream stream, int* averaged) {
    return guarded(__func__, [&](const char* name) {
        const bool has_sent = given(reducer, name).reducer.wait(stream);
        if (averaged != nullptr) *averaged = has_sent ? 1 : 0;
    });
}

ddp_status ddp_reducer_set_sync(ddp_reducer* reducer, int sync) {
    return guarded(__func__, [&](const char* name) {
        ddp_reducer& one = given(reducer, name);
        if (sync != 0) {
            one.no_sync.reset();
        } else if (!one.no_sync) {
            // It cannot be moved.
            one.no_sync.reset(new Reducer::NoSync(one.reducer.no_sync()));  // NOLINT
        }
    });
}

ddp_status ddp_sampler_create(std::size_t dataset_size, int rank, int ranks, const char* options,
                              ddp_sampler** sampler) {
    return guarded(__func__, [&](const char* name) {
        ddp_sampler*& result = not_null(sampler, name, "where the sampler goes");
        TextOptions text(name, options);
        DistributedSamplerOptions chosen;
        text.read("shuffle", chosen.shuffle);
        text.read("seed", chosen.seed);
        text.read("drop_last", chosen.drop_last);
        text.read("logical_ranks", chosen.logical_ranks);
        text.read("allow_empty", chosen.allow_empty);
        text.finish();
        result =
            new ddp_sampler{DistributedSampler(dataset_size, shard_of(rank, ranks, name), chosen)};
    });
}

void ddp_sampler_destroy(ddp_sampler* sampler) { delete sampler; }

ddp_status ddp_sampler_set_epoch(ddp_sampler* sampler, std::int64_t epoch, std::size_t finished) {
    return guarded(__func__, [&](const char* name) {
        given(sampler, name).sampler.set_epoch(epoch, finished);
    });
}

ddp_status ddp_sampler_indices(ddp_sampler* sampler, const std::size_t** indices,
                               std::size_t* count) {
    return guarded(__func__, [&](const char* name) {
        const std::size_t*& first = not_null(indices, name, "where the indices go");
        std::size_t& number = not_null(count, name, "where their number goes");
        const std::vector<std::size_t>& all = given(sampler, name).sampler.indices();
        first = all.data();
        number = all.size();
    });
}

}  // extern "C"
