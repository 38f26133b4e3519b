#include "backends/reduction/reduce.hpp"

#include "backends/reduction/reduce_kernel_set.hpp"

#include <atomic>
#include <cassert>
#include <cstring>

namespace ddp::backends {
namespace {

const KernelSet* automatic_kernels() noexcept {
    const KernelSet* const fast = avx2_kernels();
    return fast != nullptr ? fast : &baseline_kernels();
}

std::atomic<const KernelSet*> chosen{nullptr};

const KernelSet& kernels() noexcept {
    const KernelSet* set = chosen.load(std::memory_order_relaxed);
    if (set == nullptr) {
        set = automatic_kernels();
        chosen.store(set, std::memory_order_relaxed);
    }
    return *set;
}

// The operation on bytes that does to 0 and 1 what `op` does to booleans.
ReduceOp::Kind on_bytes(ReduceOp::Kind op) noexcept {
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::max:
        case ReduceOp::bit_or:
            return ReduceOp::bit_or;
        case ReduceOp::product:
        case ReduceOp::min:
        case ReduceOp::bit_and:
            return ReduceOp::bit_and;
        case ReduceOp::bit_xor:
            return ReduceOp::bit_xor;
        case ReduceOp::avg:
        case ReduceOp::premul_sum:
            break;
    }
    assert(false && "not defined on booleans");
    return op;
}

// False: nothing is copied. Where the target begins less than a line after the source on its page,
// AMD's Zen 4 takes many times as long as elsewhere (glibc's memcpy, too).
bool copy_string(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
    constexpr std::uintptr_t page = 4096;
    constexpr std::uintptr_t line = 64;
    const std::uintptr_t distance =
        (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % page;
    if (distance > 0 && distance < line) return false;
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return true;
#else
    static_cast<void>(to), static_cast<void>(from), static_cast<void>(bytes);
    return false;
#endif
}

bool is_bitwise(ReduceOp::Kind op) noexcept {
    return op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
}

}  // namespace

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
            std::size_t elements, const Reduction& how, Store store) {
    assert(!inputs.empty() && inputs.size() <= max_inputs && !outputs.empty());
    assert(is_defined(how.op, how.dtype));
    assert(how.factors.size() == (how.op == ReduceOp::premul_sum ? inputs.size() : 0));
    const bool copies = inputs.size() == 1 && how.op != ReduceOp::premul_sum;
    if (copies && !(outputs.size() == 2 && store == Store::cached)) {
        for (std::byte* const to : outputs) {
            copy(to, inputs[0], elements * size_of(how.dtype), store);
        }
        return;
    }
    Job job{.dtype = how.dtype,
            .op = how.op,
            .store = store,
            .inputs = inputs.data(),
            .input_count = inputs.size(),
            .outputs = outputs.data(),
            .output_count = outputs.size(),
            .elements = elements,
            .factors = how.factors.data()};
    if (job.dtype == DType::boolean) job.op = on_bytes(job.op);
    if (is_bitwise(job.op)) {
        job.elements *= size_of(job.dtype);
        job.dtype = DType::uint8;
    }
    kernels().reduce(job);
}

DType sum_type(DType dtype) noexcept {
    const bool half = dtype == DType::float16 || dtype == DType::bfloat16;
    return half ? DType::float32 : dtype;
}

void widen(void* to, const void* from, std::size_t elements, DType dtype, double factor) {
    assert(sum_type(dtype) != dtype);
    kernels().widen({.dtype = dtype,
                     .to = static_cast<std::byte*>(to),
                     .from = static_cast<const std::byte*>(from),
                     .elements = elements,
                     .factor = factor});
}

void finish_sum(void* to, const void* from, std::size_t elements, DType dtype,
                std::size_t divisor) {
    if (divisor == 1 && sum_type(dtype) == dtype) {
        return copy(to, from, elements * size_of(dtype));
    }
    assert(dtype != DType::boolean);
    kernels().finish_sum({.dtype = dtype,
                          .to = static_cast<std::byte*>(to),
                          .from = static_cast<const std::byte*>(from),
                          .elements = elements,
                          .divisor = divisor});
}

void copy(void* to, const void* from, std::size_t bytes, Store store) {
    if (bytes == 0 || to == from) return;
    auto* const target = static_cast<std::byte*>(to);
    const auto* const source = static_cast<const std::byte*>(from);
    if (store == Store::string && copy_string(target, source, bytes)) return;
    if (store == Store::streaming) {
        kernels().stream(target, source, bytes);
    } else if (bytes < 2048) {
        std::memmove(to, from, bytes);
    } else {
        kernels().copy(target, source, bytes);
    }
}

void prefetch_for_write(void* memory, std::size_t bytes) {
    kernels().prefetch_for_write(static_cast<std::byte*>(memory), bytes);
}

bool use_kernels(Kernels which) noexcept {
    const KernelSet* set = nullptr;
    switch (which) {
        case Kernels::automatic:
            set = automatic_kernels();
            break;
        case Kernels::scalar:
            set = &baseline_kernels();
            break;
        case Kernels::avx2:
            set = avx2_kernels();
            break;
    }
    if (set != nullptr) chosen.store(set, std::memory_order_relaxed);
    return set != nullptr;
}

}  // namespace ddp::backends
