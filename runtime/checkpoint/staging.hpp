// Staging: the bytes of tensors between wherever they are and ordinary memory. Those of a GPU go a
// part at a time through pinned memory; those of the CPU are used where they are.
#pragma once

#include <ddp/tensor.hpp>

#include <cstddef>
#include <functional>
#include <span>

namespace ddp::checkpoint {

class Staging {
public:
    Staging() = default;
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    ~Staging();

    // Calls `take` with all bytes of the tensor, in order. Those of a GPU after the work on all of
    // its streams.
    void read(const TensorView& tensor,
              const std::function<void(std::span<const std::byte>)>& take);
    void read(const TensorView& tensor, std::byte* to);
    // From tensor.bytes() bytes; for every stream of the GPU they are there when it returns.
    void write(const TensorView& tensor, const std::byte* from);

private:
    std::byte* pinned();

    void* memory_ = nullptr;
    int gpu_ = 0;  // that was current when it was made
};

}  // namespace ddp::checkpoint
