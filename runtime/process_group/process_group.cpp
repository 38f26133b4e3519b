// Checks arguments and turns each collective into a backends::Call in the queue.
#include "contract/injection.hpp"
#include "process_group/call_source.hpp"
#include "process_group/process_group_impl.hpp"

#include <ddp/error.hpp>

#include <cstdint>
#include <limits>
#include <numeric>

namespace ddp {

namespace {

using backends::Call;
using backends::Collective;

void require_same_dtype(const TensorView& input, const TensorView& output, const char* operation) {
    if (input.dtype == output.dtype) return;
    throw UsageError(std::string(operation) + ": the input holds " + to_string(input.dtype) +
                     ", the output " + to_string(output.dtype));
}

// `whole` must hold `parts` times the elements of `part`.
void require_parts(const TensorView& whole, const TensorView& part, int parts,
                   const char* operation) {
    if (whole.numel() == part.numel() * static_cast<std::size_t>(parts)) return;
    throw UsageError(std::string(operation) + ": " + std::to_string(parts) + " ranks with " +
                     std::to_string(part.numel()) + " elements each need a tensor of " +
                     std::to_string(part.numel() * static_cast<std::size_t>(parts)) +
                     " elements, not " + std::to_string(whole.numel()));
}

void require_pair(const process_group::DeviceDispatch& dispatch, const TensorView& input,
                  const TensorView& output, const char* operation) {
    dispatch.require_reachable(input, operation);
    dispatch.require_reachable(output, operation);
    dispatch.require_one_device(input, output, operation);
    require_same_dtype(input, output, operation);
}

// Input and output share no memory, but that the smaller may begin at `allowed`, the one place
// where every backend reads before it writes.
void require_apart(const TensorView& input, const TensorView& output, const void* allowed,
                   const char* operation) {
    const bool input_is_smaller = input.bytes() < output.bytes();
    const void* const smaller = input_is_smaller ? input.data : output.data;
    if (smaller == allowed) return;
    const auto in = reinterpret_cast<std::uintptr_t>(input.data);
    const auto out = reinterpret_cast<std::uintptr_t>(output.data);
    if (in >= out + output.bytes() || out >= in + input.bytes()) return;
    throw UsageError(
        std::string(operation) + ": input and output overlap: " + std::to_string(input.bytes()) +
        " and " + std::to_string(output.bytes()) + " bytes, whose beginnings are " +
        std::to_string(in < out ? out - in : in - out) + " bytes apart; give each its own memory" +
        (allowed == nullptr ? ""
         : input.bytes() == output.bytes()
             ? ", or one for both"
             : ", or let the smaller be this rank's part of the larger"));
}

const std::byte* at(const TensorView& tensor, std::size_t bytes) {
    return static_cast<const std::byte*>(tensor.data) + bytes;
}

// Where the part of `rank` begins, each being as large as `part`.
const std::byte* part_of(const TensorView& whole, const TensorView& part, int rank) {
    return at(whole, static_cast<std::size_t>(rank) * part.bytes());
}

void require_root(Root root, int ranks, const char* operation) {
    if (root.rank >= 0 && root.rank < ranks) return;
    throw UsageError(std::string(operation) + ": root " + std::to_string(root.rank) +
                     " is not a rank of a group of " + std::to_string(ranks));
}

void require_defined(ReduceOp op, const TensorView& tensor, const char* operation) {
    if (is_defined(op, tensor.dtype)) return;
    throw UsageError(std::string(operation) + ": " + to_string(op) + " is not defined on " +
                     to_string(tensor.dtype));
}

void require_counts(std::span<const std::size_t> counts, const TensorView& tensor, int ranks,
                    const char* operation, const char* which) {
    const std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    if (counts.size() == static_cast<std::size_t>(ranks) && sum == tensor.numel()) return;
    throw UsageError(std::string(operation) + ": " + std::to_string(counts.size()) + " counts of " +
                     std::to_string(sum) + " elements together for an " + which + " of " +
                     std::to_string(tensor.numel()) + " elements and " + std::to_string(ranks) +
                     " ranks");
}

Call call_of(Collective kind, const TensorView& input, const TensorView& output,
             std::size_t elements, const CallSite& site, ReduceOp op = ReduceOp::sum) {
    return {.kind = kind,
            .dtype = input.dtype,
            .op = op,
            .elements = elements,
            .input = input.data,
            .output = output.data,
            .source = process_group::current_source,
            .site = site};
}

// Whether a drill wants this rank to call what the others do not.
bool has_to_differ(int job_rank, std::int64_t step) noexcept {
    static contract::Injector injector = contract::Injector::from_environment(job_rank);
    return injector.come_to(step);
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(ProcessGroup&&) noexcept = default;
ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const noexcept { return impl_->member().rank(); }
int ProcessGroup::size() const noexcept { return impl_->member().size(); }
int ProcessGroup::local_rank() const noexcept { return impl_->member().env().local_rank; }
int ProcessGroup::local_size() const noexcept { return impl_->member().env().local_world_size; }
Shard ProcessGroup::shard() const noexcept {
    return {static_cast<std::size_t>(rank()), static_cast<std::size_t>(size())};
}
Device ProcessGroup::device() const noexcept { return impl_->dispatch().own_device(); }
Backend ProcessGroup::backend() const noexcept { return impl_->dispatch().kind(); }
std::chrono::milliseconds ProcessGroup::timeout() const noexcept {
    return impl_->dispatch().options().timeout;
}

void ProcessGroup::publish_progress(std::int64_t step, double steps_per_second,
                                    const CallSite& site) noexcept {
    impl_->member().show_progress(step, steps_per_second);
    if (!has_to_differ(impl_->member().job_rank(rank()), step)) return;
    try {
        barrier(site).wait();
    } catch (const Error&) {  // which ends the group: the next call says so
    }
}

Work ProcessGroup::all_reduce(const TensorView& tensor, ReduceOp op, Stream stream,
                              const CallSite& site) {
    return start_all_reduce(tensor, op, stream, site, nullptr);
}

Work ProcessGroup::start_all_reduce(const TensorView& tensor, ReduceOp op, Stream stream,
                                    const CallSite& site, std::chrono::nanoseconds* took) {
    impl_->dispatch().require_reachable(tensor, "all_reduce");
    require_defined(op, tensor, "all_reduce");
    const Call call = call_of(Collective::all_reduce, tensor, tensor, tensor.numel(), site, op);
    if (took != nullptr && tensor.device.type == DeviceType::cpu) {
        return impl_->dispatch().start(call, {}, took);
    }
    return impl_->dispatch().start(call, tensor.device, stream);
}

Work ProcessGroup::all_reduce(const TensorView& input, const TensorView& output, ReduceOp op,
                              Stream stream, const CallSite& site) {
    require_pair(impl_->dispatch(), input, output, "all_reduce");
    require_parts(output, input, 1, "all_reduce");
    require_apart(input, output, input.data, "all_reduce");
    require_defined(op, input, "all_reduce");
    return impl_->dispatch().start(
        call_of(Collective::all_reduce, input, output, input.numel(), site, op), input.device,
        stream);
}

void ProcessGroup::all_reduce_number(const TensorView& number, ReduceOp op, const CallSite& site) {
    require_defined(op, number, "all_reduce");
    impl_->dispatch().run(call_of(Collective::all_reduce, number, number, 1, site, op));
}

Work ProcessGroup::reduce(const TensorView& input, const TensorView& output, Root root, ReduceOp op,
                          Stream stream, const CallSite& site) {
    require_root(root, size(), "reduce");
    if (rank() == root.rank) {
        require_pair(impl_->dispatch(), input, output, "reduce");
        require_parts(output, input, 1, "reduce");
        require_apart(input, output, input.data, "reduce");
    }
    impl_->dispatch().require_reachable(input, "reduce");
    require_defined(op, input, "reduce");
    Call call = call_of(Collective::reduce, input, output, input.numel(), site, op);
    call.root = root.rank;
    return impl_->dispatch().start(call, input.device, stream);
}

Work ProcessGroup::broadcast(const TensorView& tensor, Root root, Stream stream,
                             const CallSite& site) {
    impl_->dispatch().require_reachable(tensor, "broadcast");
    require_root(root, size(), "broadcast");
    Call call = call_of(Collective::broadcast, tensor, tensor, tensor.numel(), site);
    call.root = root.rank;
    return impl_->dispatch().start(call, tensor.device, stream);
}

Work ProcessGroup::all_gather(const TensorView& input, const TensorView& output, Stream stream,
                              const CallSite& site) {
    require_pair(impl_->dispatch(), input, output, "all_gather");
    require_parts(output, input, size(), "all_gather");
    require_apart(input, output, part_of(output, input, rank()), "all_gather");
    return impl_->dispatch().start(
        call_of(Collective::all_gather, input, output, input.numel(), site), input.device, stream);
}

Work ProcessGroup::all_gather(const TensorView& input, const TensorView& output,
                              std::span<const std::size_t> counts, Stream stream,
                              const CallSite& site) {
    require_pair(impl_->dispatch(), input, output, "all_gather");
    require_counts(counts, output, size(), "all_gather", "output");
    if (counts[static_cast<std::size_t>(rank())] != input.numel()) {
        throw UsageError("all_gather: this rank gives " + std::to_string(input.numel()) +
                         " elements, but counts[" + std::to_string(rank()) + "] is " +
                         std::to_string(counts[static_cast<std::size_t>(rank())]));
    }
    const std::size_t before =
        std::accumulate(counts.begin(), counts.begin() + rank(), std::size_t{0});
    require_apart(input, output, at(output, before * size_of(output.dtype)), "all_gather");
    Call call = call_of(Collective::all_gather, input, output, 0, site);
    call.parts =
        std::make_shared<backends::Parts>(backends::Parts{{counts.begin(), counts.end()}, {}});
    return impl_->dispatch().start(call, input.device, stream);
}

Work ProcessGroup::gather(const TensorView& input, const TensorView& output, Root root,
                          Stream stream, const CallSite& site) {
    require_root(root, size(), "gather");
    if (rank() == root.rank) {
        require_pair(impl_->dispatch(), input, output, "gather");
        require_parts(output, input, size(), "gather");
        require_apart(input, output, part_of(output, input, rank()), "gather");
    }
    impl_->dispatch().require_reachable(input, "gather");
    Call call = call_of(Collective::gather, input, output, input.numel(), site);
    call.root = root.rank;
    return impl_->dispatch().start(call, input.device, stream);
}

Work ProcessGroup::scatter(const TensorView& input, const TensorView& output, Root root,
                           Stream stream, const CallSite& site) {
    require_root(root, size(), "scatter");
    if (rank() == root.rank) {
        require_pair(impl_->dispatch(), input, output, "scatter");
        require_parts(input, output, size(), "scatter");
        require_apart(input, output, part_of(input, output, rank()), "scatter");
    }
    impl_->dispatch().require_reachable(output, "scatter");
    Call call = call_of(Collective::scatter, input, output, output.numel(), site);
    call.dtype = output.dtype;
    call.root = root.rank;
    return impl_->dispatch().start(call, output.device, stream);
}

Work ProcessGroup::reduce_scatter(const TensorView& input, const TensorView& output, ReduceOp op,
                                  Stream stream, const CallSite& site) {
    require_pair(impl_->dispatch(), input, output, "reduce_scatter");
    require_parts(input, output, size(), "reduce_scatter");
    require_apart(input, output, part_of(input, output, rank()), "reduce_scatter");
    require_defined(op, input, "reduce_scatter");
    return impl_->dispatch().start(
        call_of(Collective::reduce_scatter, input, output, output.numel(), site, op), input.device,
        stream);
}

Work ProcessGroup::all_to_all(const TensorView& input, const TensorView& output, Stream stream,
                              const CallSite& site) {
    require_pair(impl_->dispatch(), input, output, "all_to_all");
    const std::size_t part = input.numel() / static_cast<std::size_t>(size());
    if (part * static_cast<std::size_t>(size()) != input.numel()) {
        throw UsageError("all_to_all: " + std::to_string(input.numel()) +
                         " elements cannot be cut into " + std::to_string(size()) +
                         " equal parts; give SplitSizes");
    }
    require_parts(output, input, 1, "all_to_all");
    require_apart(input, output, nullptr, "all_to_all");
    return impl_->dispatch().start(call_of(Collective::all_to_all, input, output, part, site),
                                   input.device, stream);
}

Work ProcessGroup::all_to_all(const TensorView& input, const TensorView& output,
                              const SplitSizes& sizes, Stream stream, const CallSite& site) {
    require_pair(impl_->dispatch(), input, output, "all_to_all");
    require_counts(sizes.input, input, size(), "all_to_all", "input");
    require_counts(sizes.output, output, size(), "all_to_all", "output");
    require_apart(input, output, nullptr, "all_to_all");
    Call call = call_of(Collective::all_to_all, input, output, 0, site);
    call.parts = std::make_shared<backends::Parts>(backends::Parts{
        {sizes.input.begin(), sizes.input.end()}, {sizes.output.begin(), sizes.output.end()}});
    return impl_->dispatch().start(call, input.device, stream);
}

Work ProcessGroup::barrier(const CallSite& site) {
    return impl_->dispatch().start(
        {.kind = Collective::barrier, .source = process_group::current_source, .site = site});
}

namespace {

// More than there can be, when the product is: every rank's backend refuses it then.
std::size_t bytes_of(const Shape& shape, DType dtype) {
    std::size_t bytes = size_of(dtype);
    bool fits = true;
    for (const std::int64_t extent : shape.extents()) {
        if (extent == 0) return 0;
        const auto count = static_cast<std::size_t>(extent);
        fits = !__builtin_mul_overflow(bytes, count, &bytes) && fits;
    }
    return fits ? bytes : std::numeric_limits<std::size_t>::max();
}

void require_on_cpu(const TensorView& memory) {
    if (memory.device.type == DeviceType::cpu) return;
    throw UsageError("adopt: the memory is on " + to_string(memory.device) +
                     ", and ranks share pages of the CPU's memory alone; allocate() gives memory "
                     "of a GPU that NCCL need not copy");
}

// What the backend of that device provides, in its place among the group's calls; `shown` is what
// those who ask see meanwhile.
std::shared_ptr<void> provide_memory(process_group::DeviceDispatch& dispatch, const Call& call,
                                     const Call& shown, const Device& where) {
    std::shared_ptr<void> memory;
    std::exception_ptr refused;  // the group goes on when there is no memory
    dispatch.run(shown, [&](backends::Backend& backend, std::uint64_t sequence,
                            const base::Deadline& deadline) {
        try {
            memory = where.type == DeviceType::cpu
                         ? backend.provide_memory(call, sequence, deadline)
                         : dispatch.allocate_on_gpu(call.bytes(), sequence, deadline, call.site);
        } catch (const SystemError&) {
            refused = std::current_exception();
        }
    });
    if (refused) std::rethrow_exception(refused);
    return memory;
}

}  // namespace

Tensor ProcessGroup::allocate(const Shape& shape, DType dtype, const Device& where,
                              const CallSite& site) {
    impl_->dispatch().require_reachable(TensorView(nullptr, shape, dtype, where), "allocate");
    const Call call{.kind = Collective::allocate, .elements = bytes_of(shape, dtype), .site = site};
    const Call shown{.kind = Collective::allocate, .dtype = dtype, .elements = shape.numel()};
    const auto memory = provide_memory(impl_->dispatch(), call, shown, where);
    return {TensorView(memory.get(), shape, dtype, where), memory};
}

std::shared_ptr<void> ProcessGroup::adopt(const TensorView& memory, const CallSite& site) {
    impl_->dispatch().require_reachable(memory, "adopt");
    require_on_cpu(memory);
    const Call call{
        .kind = Collective::adopt, .elements = memory.bytes(), .output = memory.data, .site = site};
    return provide_memory(impl_->dispatch(), call, call, memory.device);
}

}  // namespace ddp
