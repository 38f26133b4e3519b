// The memory of gradients: one flat allocation a bucket, from the group, so that an all-reduce need
// not copy it (on a GPU all buckets in one allocation, the arena, in which they get other places
// when the order changes: it is there once); and with logical ranks a copy of each
// bucket for every logical rank of this rank, from which its gradients are loaded before its
// backward.
#pragma once

#include "reducer/bucket_plan.hpp"
#include "reducer/memory/relocation.hpp"
#include "reducer/memory/vacated_memory.hpp"
#include "tensor/device/device_api.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp::reducer {

struct BucketMemory {
    BucketSpec spec;
    Tensor tensor;  // of the group
    // Logical ranks only. Gradients by logical rank of this rank; the current one's are not here.
    std::vector<std::unique_ptr<std::byte[]>> of_logical_ranks;
    Tensor wide;  // of half types, when there are other ranks: the logical ranks' sum in float32

    std::size_t bytes() const { return tensor.bytes(); }
    bool is_on_gpu() const { return spec.device.type == DeviceType::cuda; }
    // The gradients are of 16 bits, and here of 32.
    bool is_widened() const { return tensor.dtype() != spec.dtype; }
    std::byte* at(const BucketSlice& slice) const {
        return static_cast<std::byte*>(tensor.data()) + slice.offset * size_of(tensor.dtype());
    }
};

// The value of a gradient that this rank does not use, from before the backward.
struct KeptGradient {
    device::Buffer memory;
    std::size_t bytes = 0;  // 0: nothing
};

// Of a model whose parameters are on one device, which check_parameters has made sure of.
inline Device device_of(std::span<const Parameter> parameters) {
    return parameters.empty() ? Device{} : parameters.front().grad.device;
}

struct GradientMemoryOptions {
    bool views;
    bool widens;                // gradients of 16 bits, to float32; not with views
    std::size_t logical_ranks;  // of this rank
    BucketCaps caps;
};

class GradientMemory {
public:
    // Collective. In views mode the gradients move here, with their values; see VacatedMemory for
    // what is left. On a GPU after all its work. Takes the parameters on, until either end.
    GradientMemory(std::span<Parameter> parameters, ProcessGroup& group,
                   const GradientMemoryOptions& options);
    // In views mode: the gradients go back to where they were, unless the program has taken that
    // for something else, after all work of their GPU.
    ~GradientMemory();
    GradientMemory(const GradientMemory&) = delete;
    GradientMemory& operator=(const GradientMemory&) = delete;

    // Collective. Other buckets, for gradients that come in this order; their values, after the
    // work on the stream, are kept, widened ones' too, those of logical ranks are not.
    void rebuild(std::span<const std::size_t> order, BucketCaps caps, Stream stream);

    std::span<const BucketMemory> buckets() const noexcept { return buckets_; }
    std::size_t bucket_of(std::size_t parameter) const { return slice_refs_[parameter].bucket; }
    // Whether Parameter::grad is where, and as long as, it should be.
    bool is_in_place(std::size_t parameter) const;
    // In views mode: that the program has written a gradient where it was. Empty: it has not.
    std::string find_written_at_old_address() const;
    // False once a Parameter has been destroyed: no other call may follow.
    bool has_parameters() const noexcept { return !parameters_.empty() || slice_refs_.empty(); }
    std::byte* bucket_part(std::size_t parameter) const;
    bool is_widened(std::size_t parameter) const {
        return buckets_[slice_refs_[parameter].bucket].is_widened();
    }

    // Copy mode; in views mode there is nothing to copy. On the CPU one gradient at a time...
    void copy_in(std::size_t parameter) const;
    void copy_out(std::size_t parameter) const;
    // ... on a GPU a whole bucket, in as few kernels as fit; there, times a factor.
    bool packs(const BucketMemory& bucket) const { return !options_.views && bucket.is_on_gpu(); }
    void pack(const BucketMemory& bucket, double factor, Stream stream) const;
    void unpack(const BucketMemory& bucket, Stream stream) const;

    // All logical ranks after the first begin with the gradients of now.
    void start_logical_ranks() const;
    void save_gradients(std::size_t logical_rank) const;
    void load_gradients(std::size_t logical_rank) const;

private:
    std::vector<GradientSpec> gradients() const;
    DType dtype_in_bucket(DType gradient) const;
    std::size_t arena_bytes(const BucketSpec& spec) const;
    std::size_t most_bytes_of_arena() const;
    std::size_t part_bytes(std::size_t parameter) const {
        return slice_of(parameter).elements *
               size_of(buckets_[slice_refs_[parameter].bucket].tensor.dtype());
    }
    std::vector<BucketSpec> plan(std::span<const std::size_t> order) const;
    std::vector<BucketMemory> allocate(std::vector<BucketSpec> plan);
    std::vector<BucketMemory> allocate_on_cpu(std::vector<BucketSpec> plan) const;
    std::vector<BucketMemory> lay_out_in_arena(std::vector<BucketSpec> plan) const;
    void adopt(std::vector<BucketMemory> buckets, Stream stream);
    void move_gradients(Stream stream);
    std::vector<const std::byte*> widened_parts() const;
    void move_parts(std::span<const std::byte* const> from, Stream stream) const;
    void move_within_arena(std::span<const Move> moves, Stream stream) const;
    std::vector<device::PackItem> items_of(const BucketMemory& bucket) const;
    void attach_parameters();
    void detach_parameters() noexcept;
    void restore() const;
    void copy_gradients(std::size_t logical_rank, bool save) const;
    const BucketSlice& slice_of(std::size_t parameter) const {
        return buckets_[slice_refs_[parameter].bucket].spec.slices[slice_refs_[parameter].slice];
    }

    struct SliceRef {
        std::size_t bucket;
        std::size_t slice;
    };
    std::span<Parameter> parameters_;  // empty once one has been destroyed
    ProcessGroup& group_;
    GradientMemoryOptions options_;
    Device device_;                  // of all gradients
    std::shared_ptr<Tensor> arena_;  // on a GPU
    std::vector<BucketMemory> buckets_;
    std::vector<SliceRef> slice_refs_;  // by parameter
    VacatedMemory vacated_;             // by parameter, in views mode
};

}  // namespace ddp::reducer
