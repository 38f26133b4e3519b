// Element types and reductions, as loops.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stand_in {

struct Reduction {
    ncclRedOp_t op = ncclSum;            // ncclNumOps: the sum of inputs times `factor`
    std::uint64_t factor = 0;            // an element's bytes
    const void* factor_place = nullptr;  // on the device, read as the operation runs; or null
};

std::size_t size_of(ncclDataType_t);  // 0 for a type that is not supported

// out[i] = inputs[0][i] op inputs[1][i] op ...; out may be one of the inputs. `ranks` inputs.
void reduce(const std::vector<const std::byte*>& inputs, std::byte* out, std::size_t elements,
            ncclDataType_t dtype, const Reduction& reduction);

}  // namespace stand_in
