#include "bench/collective_case.hpp"

#include "bench/values.hpp"

#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace ddp::bench {
namespace {

// As a program's own vector: no pages shared, none touched.
std::shared_ptr<void> allocate_private(std::size_t bytes) {
    constexpr std::size_t line = 64;
    void* const memory = std::aligned_alloc(line, (bytes / line + 1) * line);
    if (memory == nullptr) throw std::bad_alloc();
    return {memory, [](void* old) { std::free(old); }};
}

Shape shape_of(std::size_t elements) { return Shape{static_cast<std::int64_t>(elements)}; }

std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data()); }

}  // namespace

Patterns::Patterns(const Options& options, int ranks)
    : of_rank(make_patterns(options.dtype, options.op, ranks)) {
    if (info_of(options.kind).reduces) {
        reduced = reduce_patterns(options.dtype, options.op, of_rank);
    }
}

CollectiveCase::CollectiveCase(ProcessGroup& group, const Options& options,
                               const Patterns& patterns, std::size_t bytes)
    : group_(group),
      options_(options),
      patterns_(patterns),
      where_(place_of(group, options.where)),
      op_(info_of(options.kind).reduces ? options.op : ReduceOp::sum),
      layout_(layout_of(options.kind, bytes / size_of(options.dtype), group.size(), group.rank(),
                        options.root)) {
    const Layout at_root = layout_of(options.kind, bytes / size_of(options.dtype), group.size(),
                                     options.root, options.root);
    input_ = make_tensor(layout_.input, at_root.input);
    const bool in_place = info_of(options.kind).in_place;
    output_ = in_place ? input_ : make_tensor(layout_.output, at_root.output);
    written_ = is_on_gpu() ? empty_like(input_, {.device = Device{}, .pinned = true}) : input_;
}

Device place_of(const ProcessGroup& group, Where where) {
    if (where == Where::cpu) return {};
    const Device device = group.device();
    if (where == Where::cuda && device.type != DeviceType::cuda) {
        throw UsageError("--device: this group has no GPU; --backend nccl says why");
    }
    return device;
}

// Shared memory has the same size on all ranks, also where a rank uses none of it.
Tensor CollectiveCase::make_tensor(std::size_t elements, std::size_t most_elements) {
    if (options_.path == Path::shared && most_elements > 0) {
        const Tensor all = group_.allocate(shape_of(most_elements), options_.dtype, where_);
        // Keeps the whole alive.
        return {TensorView{all.data(), shape_of(elements), options_.dtype, where_},
                std::make_shared<Tensor>(all)};
    }
    if (is_on_gpu()) return empty(shape_of(elements), {.device = where_, .dtype = options_.dtype});
    const bool adopts = options_.path == Path::adopted;
    std::shared_ptr<void> memory =
        allocate_private((adopts ? most_elements : elements) * size_of(options_.dtype));
    const TensorView tensor{memory.get(), shape_of(elements), options_.dtype};
    if (!adopts || most_elements == 0) return {tensor, memory};
    const TensorView all{memory.get(), shape_of(most_elements), options_.dtype};
    std::shared_ptr<void> adopted = group_.adopt(all);
    // The memory goes after what adopts it.
    return {tensor, std::shared_ptr<void>(memory.get(), [memory, adopted](void*) mutable {
                adopted.reset();
                memory.reset();
            })};
}

void CollectiveCase::rewrite(int iteration) {
    const Pattern& mine = patterns_.of_rank[static_cast<std::size_t>(group_.rank())];
    write_sequence(bytes_of(written_), {&mine, first_of(iteration), layout_.input});
    if (is_on_gpu()) copy_elements(written_, input_);
}

void CollectiveCase::call() {
    const Root root{options_.root};
    switch (options_.kind) {
        case Kind::all_reduce:
            return group_.all_reduce(input_, op_).wait();
        case Kind::reduce:
            return group_.reduce(input_, output_, root, op_).wait();
        case Kind::broadcast:
            return group_.broadcast(input_, root).wait();
        case Kind::all_gather:
            return group_.all_gather(input_, output_).wait();
        case Kind::gather:
            return group_.gather(input_, output_, root).wait();
        case Kind::scatter:
            return group_.scatter(input_, output_, root).wait();
        case Kind::reduce_scatter:
            return group_.reduce_scatter(input_, output_, op_).wait();
        case Kind::all_to_all:
            return group_.all_to_all(input_, output_).wait();
        case Kind::send_recv:
            return send_to_the_next();
        case Kind::barrier:
            return group_.barrier().wait();
    }
}

void CollectiveCase::send_to_the_next() {
    const int ranks = group_.size();
    const Peer next{(group_.rank() + 1) % ranks};
    const Peer last{(group_.rank() + ranks - 1) % ranks};
    const std::array transfers{P2POp{P2POp::send, input_, next}, P2POp{P2POp::recv, output_, last}};
    group_.batch_send_recv(transfers).wait();
}

int CollectiveCase::agree(int number) {
    const std::span<int> one{&number, 1};
    group_.broadcast(one).wait();
    return number;
}

void CollectiveCase::average(std::span<double> values) {
    group_.all_reduce(values, ReduceOp::avg).wait();
}

std::int64_t CollectiveCase::count_wrong(int iteration) {
    std::size_t wrong = 0;
    const Tensor got = output_.to(Device{});
    const std::byte* at = bytes_of(got);
    for (Stretch part : expected_output(options_.kind, layout_, group_.rank(), options_.root,
                                        patterns_.of_rank, patterns_.reduced)) {
        part.first += first_of(iteration);
        wrong += bench::count_wrong(at, part, options_.dtype, op_);
        at += part.elements * size_of(options_.dtype);
    }
    return group_.all_reduce(static_cast<std::int64_t>(wrong));
}

std::int64_t CollectiveCase::count_wrong_from_scratch() {
    // Booleans must stay 0 or 1; other types see bytes that no reduction gives.
    const int other = options_.dtype == DType::boolean ? 0 : 0x7b;
    Tensor before = is_on_gpu() ? empty_like(output_, {.device = Device{}}) : output_;
    if (before.bytes() > 0) std::memset(before.data(), other, before.bytes());
    if (is_on_gpu()) copy_elements(before, output_);
    rewrite(0);
    barrier();
    call();
    return count_wrong(0);
}

}  // namespace ddp::bench
