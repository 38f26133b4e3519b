#include "reducer/memory/gradient_memory.hpp"

#include "base/log.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/error.hpp>
#include <ddp/half.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

namespace ddp::reducer {
namespace {

constexpr std::size_t arena_alignment = 512;
constexpr std::size_t most_scratch = std::size_t{32} << 20;

void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
}

std::optional<std::size_t> offset_in(const Tensor& memory, const void* data) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    if (at < begin || at - begin >= memory.bytes()) return std::nullopt;
    return at - begin;
}

bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

template <class Half>
void widen(void* to, const void* from, std::size_t elements) {
    const auto* const halves = static_cast<const Half*>(from);
    auto* const floats = static_cast<float*>(to);
    for (std::size_t i = 0; i < elements; ++i) floats[i] = static_cast<float>(halves[i]);
}

template <class Half>
void round_to(void* to, const void* from, std::size_t elements) {
    const auto* const floats = static_cast<const float*>(from);
    auto* const halves = static_cast<Half*>(to);
    for (std::size_t i = 0; i < elements; ++i) halves[i] = Half(floats[i]);
}

}  // namespace

GradientMemory::GradientMemory(std::span<Parameter> parameters, ProcessGroup& group,
                               const GradientMemoryOptions& options)
    : parameters_(parameters),
      group_(group),
      options_(options),
      device_(device_of(parameters)),
      slice_refs_(parameters.size()) {
    device::finish_all(device_);
    if (options_.views) {
        for (const Parameter& parameter : parameters_) vacated_.add(parameter.grad);
    }
    adopt(allocate(plan(reverse_order(parameters_.size()))), {});
    vacated_.vacate();
    attach_parameters();
}

GradientMemory::~GradientMemory() {
    try {
        restore();
    } catch (const Error& error) {  // of a GPU that does nothing more
        base::log_warn("reducer", std::string("the gradients' values are lost: ") + error.what());
    }
    for (std::size_t p = 0; !vacated_.empty() && p < parameters_.size(); ++p) {
        TensorView& grad = parameters_[p].grad;
        if (grad.data == bucket_part(p)) grad.data = vacated_.data(p);
    }
    detach_parameters();
}

void GradientMemory::attach_parameters() {
    for (Parameter& parameter : parameters_) {
        parameter.reducer.attach(this, [](void* self) noexcept {
            static_cast<GradientMemory*>(self)->parameters_ = {};
        });
    }
}

void GradientMemory::detach_parameters() noexcept {
    for (Parameter& parameter : parameters_) parameter.reducer.detach();
}

void GradientMemory::restore() const {
    if (vacated_.empty()) return;
    device::finish_all(device_);
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        const std::byte* const part = bucket_part(p);
        if (vacated_.data(p) == nullptr) continue;       // it had none
        if (parameters_[p].grad.data != part) continue;  // its owner has taken it elsewhere
        if (vacated_.state(p) != VacatedMemory::State::untouched) {
            base::log_warn("reducer", "the gradient of " + parameters_[p].name +
                                          " is lost: the memory it would go back to was freed or "
                                          "written while the reducer had it");
            continue;
        }
        const DType dtype = buckets_[slice_refs_[p].bucket].spec.dtype;
        device::copy(device_, vacated_.data(p), part, slice_of(p).elements * size_of(dtype), {});
    }
    device::finish(device_, {});
}

std::string GradientMemory::find_written_at_old_address() const {
    for (std::size_t p = 0; !vacated_.empty() && p < parameters_.size(); ++p) {
        if (vacated_.state(p) != VacatedMemory::State::written) continue;
        return "the gradient of " + parameters_[p].name +
               " was written where it was before the reducer moved it (or that memory was freed); "
               "use Parameter::grad, which says where it is now, or leave gradient_as_bucket_view "
               "at false";
    }
    return {};
}

void GradientMemory::rebuild(std::span<const std::size_t> order, BucketCaps caps, Stream stream) {
    options_.caps = caps;
    adopt(allocate(plan(order)), stream);
}

std::vector<GradientSpec> GradientMemory::gradients() const {
    std::vector<GradientSpec> all;
    for (const Parameter& parameter : parameters_) {
        all.push_back({parameter.grad.numel(), parameter.grad.dtype, parameter.grad.device});
    }
    return all;
}

std::vector<BucketSpec> GradientMemory::plan(std::span<const std::size_t> order) const {
    return plan_buckets(gradients(), order, options_.caps, static_cast<std::size_t>(group_.size()));
}

DType GradientMemory::dtype_in_bucket(DType gradient) const {
    return options_.widens && is_half(gradient) ? DType::float32 : gradient;
}

std::size_t GradientMemory::arena_bytes(const BucketSpec& spec) const {
    const std::size_t bytes = spec.elements * size_of(dtype_in_bucket(spec.dtype));
    return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

// On a GPU in the arena that there is: it is large enough for any order. Smaller buckets, which
// autotune tries, have more ends.
std::vector<BucketMemory> GradientMemory::allocate(std::vector<BucketSpec> plan) {
    if (device_.type == DeviceType::cpu) return allocate_on_cpu(std::move(plan));
    std::size_t bytes = 0;
    for (const BucketSpec& spec : plan) bytes += arena_bytes(spec);
    if (!arena_ || arena_->bytes() < bytes) {
        const std::size_t most = most_bytes_of_arena();
        arena_ = std::make_shared<Tensor>(
            group_.allocate({static_cast<std::int64_t>(most)}, DType::uint8, device_));
    }
    return lay_out_in_arena(std::move(plan));
}

// Of any order. Those that are widened are buckets of their own.
std::size_t GradientMemory::most_bytes_of_arena() const {
    std::vector<GradientSpec> as_they_are, widened;
    for (const GradientSpec& gradient : gradients()) {
        const bool is_widened = dtype_in_bucket(gradient.dtype) != gradient.dtype;
        (is_widened ? widened : as_they_are).push_back(gradient);
    }
    const auto most = [&](const std::vector<GradientSpec>& of) {
        return most_bytes_of_plans(of, options_.caps, static_cast<std::size_t>(group_.size()),
                                   arena_alignment);
    };
    return most(as_they_are) + 2 * most(widened);
}

std::vector<BucketMemory> GradientMemory::allocate_on_cpu(std::vector<BucketSpec> plan) const {
    std::vector<BucketMemory> buckets;
    for (BucketSpec& spec : plan) {
        const Shape shape{static_cast<std::int64_t>(spec.elements)};
        Tensor memory = group_.allocate(shape, dtype_in_bucket(spec.dtype));
        BucketMemory bucket{std::move(spec), std::move(memory), {}, {}};
        if (options_.logical_ranks > 1) {
            for (std::size_t l = 0; l < options_.logical_ranks; ++l) {
                bucket.of_logical_ranks.push_back(std::make_unique<std::byte[]>(bucket.bytes()));
            }
            if (is_half(bucket.spec.dtype) && group_.size() > 1) {
                bucket.wide = group_.allocate(shape, DType::float32);
            }
        }
        buckets.push_back(std::move(bucket));
    }
    return buckets;
}

std::vector<BucketMemory> GradientMemory::lay_out_in_arena(std::vector<BucketSpec> plan) const {
    std::vector<BucketMemory> buckets;
    auto* data = static_cast<std::byte*>(arena_->data());
    for (BucketSpec& spec : plan) {
        const std::size_t bytes = arena_bytes(spec);
        const Shape shape{static_cast<std::int64_t>(spec.elements)};
        const TensorView view(data, shape, dtype_in_bucket(spec.dtype), device_);
        buckets.push_back(
            {std::move(spec), Tensor(view, std::shared_ptr<void>(arena_, data)), {}, {}});
        data += bytes;
    }
    return buckets;
}

// The old buckets, which the gradients may still lie in, go at the end.
void GradientMemory::adopt(std::vector<BucketMemory> buckets, Stream stream) {
    const std::vector<const std::byte*> averages = widened_parts();
    buckets_.swap(buckets);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const auto& slices = buckets_[b].spec.slices;
        for (std::size_t s = 0; s < slices.size(); ++s) slice_refs_[slices[s].parameter] = {b, s};
    }
    if (options_.views) move_gradients(stream);
    if (!averages.empty()) move_parts(averages, stream);
    device::finish(device_, stream);
}

// Where the averages are that float32_average shows, and what else is in the buckets. Empty: none.
std::vector<const std::byte*> GradientMemory::widened_parts() const {
    std::vector<const std::byte*> parts;
    for (std::size_t p = 0; options_.widens && !buckets_.empty() && p < parameters_.size(); ++p) {
        parts.push_back(bucket_part(p));
    }
    return parts;
}

// From where they are.
void GradientMemory::move_gradients(Stream stream) {
    std::vector<const std::byte*> from;
    for (const Parameter& parameter : parameters_) {
        from.push_back(static_cast<const std::byte*>(parameter.grad.data));
    }
    move_parts(from, stream);
    for (std::size_t p = 0; p < parameters_.size(); ++p) parameters_[p].grad.data = bucket_part(p);
}

// Each parameter's part of its bucket, from there; zeros from null. What lies in the arena already
// goes first, before others come over it.
void GradientMemory::move_parts(std::span<const std::byte* const> from, Stream stream) const {
    std::vector<Move> within_arena;
    std::vector<std::size_t> others;
    for (std::size_t p = 0; p < from.size(); ++p) {
        const std::size_t bytes = part_bytes(p);
        const auto at = arena_ ? offset_in(*arena_, from[p]) : std::nullopt;
        if (at && bytes > 0) {
            within_arena.push_back({*at, *offset_in(*arena_, bucket_part(p)), bytes});
        } else {
            others.push_back(p);
        }
    }
    move_within_arena(within_arena, stream);
    for (const std::size_t p : others) {
        if (from[p] == nullptr) {
            device::set_zero(device_, bucket_part(p), part_bytes(p), stream);
        } else if (from[p] != bucket_part(p)) {
            device::copy(device_, bucket_part(p), from[p], part_bytes(p), stream);
        }
    }
}

void GradientMemory::move_within_arena(std::span<const Move> moves, Stream stream) const {
    std::size_t bucket = 1;
    for (const BucketMemory& one : buckets_) bucket = std::max(bucket, one.bytes());
    const Relocation relocation = plan_relocation(moves, std::min(bucket, most_scratch));
    if (relocation.steps.empty()) return;
    std::vector<std::byte> host(relocation.host_bytes), instead;
    device::Buffer on_gpu;
    std::byte* scratch = nullptr;
    try {
        scratch = on_gpu.reserve(device_, std::max<std::size_t>(relocation.scratch_bytes, 1));
    } catch (const SystemError&) {  // of a full GPU
        instead.resize(relocation.scratch_bytes);
        scratch = instead.data();
    }
    const auto place = [&](CopyStep::Place which, std::size_t at) {
        if (which == CopyStep::Place::host) return host.data() + at;
        if (which == CopyStep::Place::scratch) return scratch + at;
        return static_cast<std::byte*>(arena_->data()) + at;
    };
    for (const CopyStep& step : relocation.steps) {
        device::copy(device_, place(step.to, step.to_at), place(step.from, step.from_at),
                     step.bytes, stream);
    }
    device::finish(device_, stream);  // before the scratch memory goes
}

bool GradientMemory::is_in_place(std::size_t parameter) const {
    const TensorView& grad = parameters_[parameter].grad;
    return grad.numel() == slice_of(parameter).elements &&
           grad.dtype == buckets_[slice_refs_[parameter].bucket].spec.dtype &&
           grad.device == device_ && (!options_.views || grad.data == bucket_part(parameter));
}

std::byte* GradientMemory::bucket_part(std::size_t parameter) const {
    return buckets_[slice_refs_[parameter].bucket].at(slice_of(parameter));
}

void GradientMemory::copy_in(std::size_t parameter) const {
    if (options_.views || device_.type != DeviceType::cpu) return;
    const TensorView& grad = parameters_[parameter].grad;
    std::byte* const part = bucket_part(parameter);
    if (!is_widened(parameter)) return copy(part, grad.data, grad.bytes());
    if (grad.dtype == DType::float16) return widen<float16>(part, grad.data, grad.numel());
    widen<bfloat16>(part, grad.data, grad.numel());
}

void GradientMemory::copy_out(std::size_t parameter) const {
    if (options_.views || device_.type != DeviceType::cpu) return;
    const TensorView& grad = parameters_[parameter].grad;
    const std::byte* const part = bucket_part(parameter);
    if (!is_widened(parameter)) return copy(grad.data, part, grad.bytes());
    if (grad.dtype == DType::float16) return round_to<float16>(grad.data, part, grad.numel());
    round_to<bfloat16>(grad.data, part, grad.numel());
}

std::vector<device::PackItem> GradientMemory::items_of(const BucketMemory& bucket) const {
    std::vector<device::PackItem> items;
    for (const BucketSlice& slice : bucket.spec.slices) {
        if (!is_in_place(slice.parameter)) continue;
        items.push_back({parameters_[slice.parameter].grad.data, slice.elements, slice.offset});
    }
    return items;
}

void GradientMemory::pack(const BucketMemory& bucket, double factor, Stream stream) const {
    device::DeviceApi& api = device::device_api();
    const std::vector<device::PackItem> items = items_of(bucket);
    if (!bucket.is_widened()) return api.pack(items, bucket.tensor, factor, stream);
    api.pack_widened(items, bucket.spec.dtype, bucket.tensor, factor, stream);
}

void GradientMemory::unpack(const BucketMemory& bucket, Stream stream) const {
    device::DeviceApi& api = device::device_api();
    const std::vector<device::PackItem> items = items_of(bucket);
    if (!bucket.is_widened()) return api.unpack(bucket.tensor, items, stream);
    api.unpack_rounded(bucket.tensor, items, bucket.spec.dtype, stream);
}

void GradientMemory::start_logical_ranks() const {
    for (std::size_t l = 1; l < options_.logical_ranks; ++l) save_gradients(l);
}
void GradientMemory::save_gradients(std::size_t logical_rank) const {
    copy_gradients(logical_rank, true);
}
void GradientMemory::load_gradients(std::size_t logical_rank) const {
    copy_gradients(logical_rank, false);
}

void GradientMemory::copy_gradients(std::size_t logical_rank, bool save) const {
    for (const BucketMemory& bucket : buckets_) {
        for (const BucketSlice& slice : bucket.spec.slices) {
            if (!is_in_place(slice.parameter)) continue;
            const TensorView& grad = parameters_[slice.parameter].grad;
            std::byte* const kept = bucket.of_logical_ranks[logical_rank].get() +
                                    slice.offset * size_of(bucket.spec.dtype);
            if (save) {
                copy(kept, grad.data, grad.bytes());
            } else {
                copy(grad.data, kept, grad.bytes());
            }
        }
    }
}

}  // namespace ddp::reducer
