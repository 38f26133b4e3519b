// A whole reduction, block by block: results that go to several outputs, or past the caches, and
// partial results, stay in the first-level cache until they are used. Included by each source of
// kernels, after its Machine.
#pragma once

#include "backends/reduction/reduce_into.hpp"
#include "backends/reduction/reduce_kernel_set.hpp"
#include "backends/reduction/reduce_tree.hpp"

namespace ddp::backends {
namespace {

constexpr std::size_t block_bytes = 2048;  // a few of them stay in the first-level cache
// So few that the processor reads on while the last results are still being written to memory.
constexpr std::size_t stream_bytes = 512;

std::size_t misalignment(const std::byte* at, std::size_t alignment) {
    return reinterpret_cast<std::uintptr_t>(at) & (alignment - 1);
}

void stream_unfinished(std::byte* to, const std::byte* from, std::size_t bytes) {
    constexpr std::size_t step = Machine::vector_bytes;
    std::size_t i = (line_bytes - misalignment(to, line_bytes)) & (line_bytes - 1);
    if (i > bytes) i = bytes;
    if (i > 0) std::memcpy(to, from, i);
    for (; i + 4 * step <= bytes; i += 4 * step) {
        Machine::stream(to + i, from + i);
        Machine::stream(to + i + step, from + i + step);
        Machine::stream(to + i + 2 * step, from + i + 2 * step);
        Machine::stream(to + i + 3 * step, from + i + 3 * step);
    }
    for (; i + step <= bytes; i += step) Machine::stream(to + i, from + i);
    if (i < bytes) std::memcpy(to + i, from + i, bytes - i);
}

void stream_all(std::byte* to, const std::byte* from, std::size_t bytes) {
    stream_unfinished(to, from, bytes);
    Machine::finish_streams();
}

// The lines written are asked for a little ahead, to be ours alone: readers have had them.
void copy_all(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::size_t i = (line_bytes - misalignment(to, line_bytes)) & (line_bytes - 1);
    if (i > bytes) i = bytes;
    std::memcpy(to, from, i);
    for (; i + line_bytes <= bytes; i += line_bytes) {
        Machine::prefetch_to_write(to + i + ahead);
        struct Line {
            std::byte bytes[line_bytes];
        } line;
        std::memcpy(&line, from + i, line_bytes);
        std::memcpy(to + i, &line, line_bytes);
    }
    std::memcpy(to + i, from + i, bytes - i);
}

template <class Format, class Op, Finishing finishing>
class Blocks {
public:
    explicit Blocks(const Job& job) : job_(job) {}

    void run() {
        if constexpr (Machine::combines_into_several) {
            const bool several = job_.store == Store::cached && job_.output_count > 1;
            if (several && in_registers_ && combine_few_into<Format, Op, finishing, few_>(job_)) {
                return;
            }
        }
        const bool whole = in_registers_ && job_.store == Store::cached && job_.output_count == 1;
        const std::size_t block =
            (in_registers_ && job_.store == Store::streaming ? stream_bytes : block_bytes) /
            sizeof(Work);
        for (std::size_t first = 0, count = 0; first < job_.elements; first += count) {
            // Ends where a line of the first output does.
            count = block - misalignment(job_.outputs[0] + first * Format::bytes, line_bytes) /
                                Format::bytes;
            if (whole || count > job_.elements - first) count = job_.elements - first;
            write_block(first, count);
        }
        if (job_.store == Store::streaming) Machine::finish_streams();
    }

private:
    using Work = typename Format::Work;
    using Scratch = Plain<Work>;
    static constexpr std::size_t few_ =
        finishing == Finishing::premultiply ? 1 : at_once<Format, Op>;
    static constexpr std::size_t max_depth_ = 12;
    static_assert(max_inputs == std::size_t{1} << max_depth_);

    void write_block(std::size_t first, std::size_t count) {
        const bool cached = job_.store == Store::cached;
        const std::size_t offset = first * Format::bytes;
        std::byte* const result = cached ? job_.outputs[0] + offset : result_;
        reduce_block(first, count, result);
        for (std::size_t k = cached ? 1 : 0; k < job_.output_count; ++k) {
            std::byte* const to = job_.outputs[k] + offset;
            if (cached) {
                std::memcpy(to, result, count * Format::bytes);
            } else {
                stream_unfinished(to, result, count * Format::bytes);
            }
        }
    }

    void reduce_block(std::size_t first, std::size_t count, std::byte* out) {
        if (in_registers_) {
            combine_few<Format, Format, Op, finishing, few_>(job_, 0, job_.input_count, first, out,
                                                             count);
            return;
        }
        const std::size_t middle = middle_of(job_.input_count);
        subtree(0, middle, first, count, scratch_[0], 1);
        subtree(middle, job_.input_count, first, count, scratch_[1], 2);
        const std::byte* const halves[] = {scratch_[0], scratch_[1]};
        if constexpr (finishing == Finishing::average) {
            combine<Scratch, Format, Op, 2>(halves, 0, out, count,
                                            Divide<std::size_t>{job_.input_count});
        } else {
            combine<Scratch, Format, Op, 2>(halves, 0, out, count, Keep{});
        }
    }

    // The inputs low <= r < high, into `out`; the scratch from `depth` on is free.
    [[gnu::noinline]] void subtree(std::size_t low, std::size_t high, std::size_t first,
                                   std::size_t count, std::byte* out, std::size_t depth) {
        if (high - low <= few_) {
            constexpr auto partial = finishing == Finishing::average ? Finishing::keep : finishing;
            combine_few<Format, Scratch, Op, partial, few_>(job_, low, high, first, out, count);
            return;
        }
        const std::size_t middle = low + middle_of(high - low);
        subtree(low, middle, first, count, out, depth + 1);
        subtree(middle, high, first, count, scratch_[depth], depth + 1);
        const std::byte* const halves[] = {out, scratch_[depth]};
        combine<Scratch, Scratch, Op, 2>(halves, 0, out, count, Keep{});
    }

    const Job& job_;
    const bool in_registers_ = job_.input_count <= few_;
    alignas(line_bytes) std::byte result_[block_bytes];
    alignas(line_bytes) std::byte scratch_[max_depth_ + 1][block_bytes];
};

}  // namespace
}  // namespace ddp::backends
