#include "reducer/bucket_plan.hpp"

#include <algorithm>
#include <numeric>

namespace ddp::reducer {
namespace {

constexpr std::size_t slice_alignment_bytes = 64;

// The bucket that is being filled for one dtype and device.
struct OpenBucket {
    BucketSpec bucket;
    bool first = true;  // of its key
};

void append(BucketSpec& bucket, std::size_t parameter, const GradientSpec& gradient) {
    const std::size_t multiple = slice_alignment_bytes / size_of(gradient.dtype);
    bucket.slices.push_back({parameter, bucket.elements, gradient.elements});
    bucket.elements += (gradient.elements + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<BucketSpec> plan_buckets(std::span<const GradientSpec> gradients,
                                     std::span<const std::size_t> order, BucketCaps caps) {
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
    return plan;
}

std::vector<std::size_t> reverse_order(std::size_t parameters) {
    std::vector<std::size_t> order(parameters);
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    return order;
}

}  // namespace ddp::reducer
