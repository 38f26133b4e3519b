#include "reducer/bucket_plan.hpp"

#include <algorithm>
#include <numeric>

namespace ddp::reducer {
namespace {

constexpr std::size_t cpu_alignment_bytes = 64;
constexpr std::size_t gpu_alignment_bytes = 256;

std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// The bucket that is being filled for one dtype and device.
struct OpenBucket {
    BucketSpec bucket;
    bool first = true;  // of its key
};

std::size_t elements_taken(const GradientSpec& gradient) {
    const std::size_t alignment =
        gradient.device.type == DeviceType::cpu ? cpu_alignment_bytes : gpu_alignment_bytes;
    return round_up(gradient.elements, alignment / size_of(gradient.dtype));
}

void append(BucketSpec& bucket, std::size_t parameter, const GradientSpec& gradient) {
    bucket.slices.push_back({parameter, bucket.elements, gradient.elements});
    bucket.elements += elements_taken(gradient);
}

// What a bucket's elements are a multiple of.
std::size_t unit_of(DType dtype, const Device& device, std::size_t ranks) {
    constexpr std::size_t part_bytes = 16;
    constexpr std::size_t whole_elements = 128;
    if (device.type == DeviceType::cpu) return 1;
    return std::lcm(ranks * part_bytes / size_of(dtype), whole_elements);
}

}  // namespace

std::vector<BucketSpec> plan_buckets(std::span<const GradientSpec> gradients,
                                     std::span<const std::size_t> order, BucketCaps caps,
                                     std::size_t ranks) {
    std::vector<BucketSpec> plan;
    std::vector<OpenBucket> open;
    for (const std::size_t parameter : order) {
        const GradientSpec& gradient = gradients[parameter];
        auto found = std::find_if(open.begin(), open.end(), [&](const OpenBucket& candidate) {
            return candidate.bucket.dtype == gradient.dtype &&
                   candidate.bucket.device == gradient.device;
        });
        if (found == open.end()) {
            open.push_back({BucketSpec{gradient.dtype, gradient.device, {}, 0}});
            found = open.end() - 1;
        }
        append(found->bucket, parameter, gradient);
        const std::size_t cap = found->first ? caps.first_bytes : caps.other_bytes;
        if (found->bucket.elements * size_of(gradient.dtype) >= cap) {
            plan.push_back(std::move(found->bucket));
            *found = {BucketSpec{gradient.dtype, gradient.device, {}, 0}, false};
        }
    }
    for (OpenBucket& rest : open) {
        if (!rest.bucket.slices.empty()) plan.push_back(std::move(rest.bucket));
    }
    for (BucketSpec& bucket : plan) {
        bucket.elements = round_up(bucket.elements, unit_of(bucket.dtype, bucket.device, ranks));
    }
    return plan;
}

// All buckets of a dtype and device but the first and the last have reached the cap.
std::size_t most_bytes_of_plans(std::span<const GradientSpec> gradients, BucketCaps caps,
                                std::size_t ranks, std::size_t alignment) {
    struct Key {
        DType dtype;
        Device device;
        std::size_t gradients = 0;
        std::size_t bytes = 0;
    };
    std::vector<Key> keys;
    for (const GradientSpec& gradient : gradients) {
        auto key = std::ranges::find_if(keys, [&](const Key& one) {
            return one.dtype == gradient.dtype && one.device == gradient.device;
        });
        if (key == keys.end()) key = keys.insert(key, {gradient.dtype, gradient.device});
        ++key->gradients;
        key->bytes += elements_taken(gradient) * size_of(gradient.dtype);
    }
    std::size_t most = 0;
    for (const Key& key : keys) {
        const std::size_t closed = key.bytes / std::max(caps.other_bytes, std::size_t{1});
        const std::size_t buckets = std::min(key.gradients, closed + 2);
        const std::size_t unit = unit_of(key.dtype, key.device, ranks) * size_of(key.dtype);
        most += key.bytes + buckets * (unit + alignment);
    }
    return most;
}

std::vector<std::size_t> reverse_order(std::size_t parameters) {
    std::vector<std::size_t> order(parameters);
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    return order;
}

}  // namespace ddp::reducer
