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

void append(BucketSpec& bucket, std::size_t parameter, const GradientSpec& gradient) {
    const std::size_t alignment =
        gradient.device.type == DeviceType::cpu ? cpu_alignment_bytes : gpu_alignment_bytes;
    bucket.slices.push_back({parameter, bucket.elements, gradient.elements});
    bucket.elements += round_up(gradient.elements, alignment / size_of(gradient.dtype));
}

void pad_end(BucketSpec& bucket, std::size_t ranks) {
    constexpr std::size_t part_bytes = 16;
    constexpr std::size_t whole_elements = 128;
    if (bucket.device.type == DeviceType::cpu) return;
    bucket.elements = round_up(
        bucket.elements, std::lcm(ranks * part_bytes / size_of(bucket.dtype), whole_elements));
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
    for (BucketSpec& bucket : plan) pad_end(bucket, ranks);
    return plan;
}

std::vector<std::size_t> reverse_order(std::size_t parameters) {
    std::vector<std::size_t> order(parameters);
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    return order;
}

}  // namespace ddp::reducer
