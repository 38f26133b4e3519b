// The reducer: one flat buffer a bucket, a count of gradients still missing in each, and the rule
// that bucket i is sent only after bucket i - 1.
#include <ddp/reducer.hpp>

#include "reducer/bucket_plan.hpp"
#include "reducer/parameter_check.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace ddp {
namespace {

constexpr std::size_t mib = 1024 * 1024;

void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
}

struct Bucket {
    reducer::BucketSpec spec;
    Tensor memory;            // the group's, so that an all-reduce need not copy it
    std::size_t missing = 0;  // gradients not yet ready in this backward
    Work work;

    std::byte* at(const reducer::BucketSlice& slice) const {
        return static_cast<std::byte*>(memory.data()) + slice.offset * size_of(spec.dtype);
    }
};

std::string list_names(const std::vector<std::string>& names) {
    constexpr std::size_t shown = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), shown); ++i) {
        text += (i == 0 ? "" : ", ") + names[i];
    }
    if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
    return text;
}

}  // namespace

class Reducer::Impl {
public:
    Impl(std::span<Parameter> parameters, ProcessGroup& group, const ReducerOptions& options)
        : parameters_(parameters), group_(group), views_(options.gradient_as_bucket_view) {
        reducer::check_parameters(parameters, group, options);
        broadcast_values();
        make_buckets(options);
        if (views_) move_gradients_into_buckets();
        start_backward();
    }
    ~Impl() {
        for (Bucket& bucket : buckets_) bucket.work = Work();
        if (views_) move_gradients_back();
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void mark_ready(std::size_t parameter, Stream stream);
    void wait(Stream stream);
    void set_no_sync(bool on);
    std::size_t num_buckets() const { return buckets_.size(); }

private:
    void broadcast_values();
    void make_buckets(const ReducerOptions& options);
    void move_gradients_into_buckets();
    void move_gradients_back();
    void start_backward();
    void send_complete_buckets(Stream stream);
    void throw_missing() const;

    struct Place {
        std::size_t bucket;
        std::size_t slice;
    };

    std::span<Parameter> parameters_;
    ProcessGroup& group_;
    bool views_;
    bool no_sync_ = false;
    std::vector<Bucket> buckets_;
    std::vector<Place> places_;          // by parameter
    std::vector<void*> original_grads_;  // by parameter, in views mode
    std::vector<bool> ready_;            // by parameter, in this backward
    std::size_t next_bucket_ = 0;        // the first one not yet sent
};

void Reducer::Impl::broadcast_values() {
    std::vector<Work> works;
    works.reserve(parameters_.size());
    for (const Parameter& parameter : parameters_) {
        works.push_back(group_.broadcast(parameter.value, Root{0}));
    }
    for (Work& work : works) work.wait();
}

void Reducer::Impl::make_buckets(const ReducerOptions& options) {
    std::vector<reducer::GradientSpec> gradients;
    for (const Parameter& parameter : parameters_) {
        gradients.push_back({parameter.grad.numel(), parameter.grad.dtype, parameter.grad.device});
    }
    const auto bytes = [](double mebibytes) {
        return static_cast<std::size_t>(mebibytes * static_cast<double>(mib));
    };
    places_.resize(parameters_.size());
    for (auto& spec : reducer::plan_buckets(
             gradients, {bytes(options.first_bucket_mb), bytes(options.bucket_cap_mb)})) {
        for (std::size_t slice = 0; slice < spec.slices.size(); ++slice) {
            places_[spec.slices[slice].parameter] = {buckets_.size(), slice};
        }
        Tensor memory =
            group_.allocate(Shape{static_cast<std::int64_t>(spec.elements)}, spec.dtype);
        buckets_.push_back({std::move(spec), std::move(memory), 0, Work()});
    }
}

void Reducer::Impl::move_gradients_into_buckets() {
    original_grads_.resize(parameters_.size());
    for (const Bucket& bucket : buckets_) {
        for (const reducer::BucketSlice& slice : bucket.spec.slices) {
            TensorView& grad = parameters_[slice.parameter].grad;
            original_grads_[slice.parameter] = grad.data;
            copy(bucket.at(slice), grad.data, grad.bytes());
            grad.data = bucket.at(slice);
        }
    }
}

void Reducer::Impl::move_gradients_back() {
    for (std::size_t i = 0; i < original_grads_.size(); ++i) {
        TensorView& grad = parameters_[i].grad;
        copy(original_grads_[i], grad.data, grad.bytes());
        grad.data = original_grads_[i];
    }
}

void Reducer::Impl::start_backward() {
    ready_.assign(parameters_.size(), false);
    for (Bucket& bucket : buckets_) bucket.missing = bucket.spec.slices.size();
    next_bucket_ = 0;
}

void Reducer::Impl::mark_ready(std::size_t parameter, Stream stream) {
    if (parameter >= parameters_.size()) {
        throw UsageError("reducer: parameter " + std::to_string(parameter) +
                         " was marked ready; there are " + std::to_string(parameters_.size()));
    }
    if (no_sync_) return;
    if (ready_[parameter]) {
        throw UsageError("reducer: the gradient of " + parameters_[parameter].name +
                         " was marked ready twice in one backward; mark it once, when it is "
                         "complete, and call wait() after each backward");
    }
    ready_[parameter] = true;
    Bucket& bucket = buckets_[places_[parameter].bucket];
    if (!views_) {
        const TensorView& grad = parameters_[parameter].grad;
        copy(bucket.at(bucket.spec.slices[places_[parameter].slice]), grad.data, grad.bytes());
    }
    --bucket.missing;
    send_complete_buckets(stream);
}

// In bucket order, so that all ranks start the same all-reduces in the same order.
void Reducer::Impl::send_complete_buckets(Stream stream) {
    while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
        Bucket& bucket = buckets_[next_bucket_];
        bucket.work = group_.all_reduce(bucket.memory, ReduceOp::avg, stream);
        ++next_bucket_;
    }
}

void Reducer::Impl::wait(Stream stream) {
    if (no_sync_) return;
    if (next_bucket_ < buckets_.size()) throw_missing();
    for (Bucket& bucket : buckets_) {
        bucket.work.wait(stream);
        bucket.work = Work();
        if (views_) continue;
        for (const reducer::BucketSlice& slice : bucket.spec.slices) {
            const TensorView& grad = parameters_[slice.parameter].grad;
            copy(grad.data, bucket.at(slice), grad.bytes());
        }
    }
    start_backward();
}

void Reducer::Impl::throw_missing() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < ready_.size(); ++i) {
        if (!ready_[i]) names.push_back(parameters_[i].name);
    }
    throw UsageError("reducer: backward ended on rank " + std::to_string(group_.rank()) +
                     " without a gradient for " + list_names(names) +
                     "; every parameter must be marked ready in each backward");
}

void Reducer::Impl::set_no_sync(bool on) {
    if (on && no_sync_) {
        throw UsageError("reducer: no_sync() while another no_sync() guard lives; one is enough");
    }
    const bool in_backward = std::find(ready_.begin(), ready_.end(), true) != ready_.end();
    if (on && in_backward) {
        throw UsageError("reducer: no_sync() in the middle of a backward; call wait() first");
    }
    no_sync_ = on;
}

Reducer::Reducer(std::span<Parameter> parameters, ProcessGroup& group,
                 const ReducerOptions& options)
    : impl_(std::make_unique<Impl>(parameters, group, options)) {}
Reducer::~Reducer() = default;
Reducer::Reducer(Reducer&&) noexcept = default;
Reducer& Reducer::operator=(Reducer&&) noexcept = default;

void Reducer::mark_ready(std::size_t parameter, Stream stream) {
    impl_->mark_ready(parameter, stream);
}
void Reducer::wait(Stream stream) { impl_->wait(stream); }
std::size_t Reducer::num_buckets() const noexcept { return impl_->num_buckets(); }

Reducer::NoSync::NoSync(Impl& impl) : impl_(impl) { impl_.set_no_sync(true); }
Reducer::NoSync::~NoSync() { impl_.set_no_sync(false); }

}  // namespace ddp
