// What ddp costs on one GPU: the start of a group, a call over the raw NCCL call, packing over the
// card's own copy, and with more ranks further groups. Rank 0 prints a line a measure, as JSON.
// Ranks that share a GPU show what a call takes of the host, and no more. tools/gpu-check.sh runs
// it. With --quick only enough of it to see that it works.
#include "backends/nccl/nccl_library.hpp"
#include "bench/method.hpp"
#include "tensor/device/device_api.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/error.hpp>
#include <ddp/nccl.hpp>
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void check(ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) {
        throw ddp::BackendError("nccl", result, "a raw call failed");
    }
}

// Each call begins at rest: whatever the one before woke, the device's or NCCL's threads, has gone
// back to sleep, or calls differ by what they find awake.
Clock::time_point begin_at_rest() {
    constexpr auto rest = std::chrono::microseconds{300};
    const auto woken = Clock::now();
    while (Clock::now() - woken < rest) {
    }
    return Clock::now();
}

// From the call until it returns, and until the GPU is done, which is polled.
struct Times {
    std::vector<double> done, returns;

    template <class IsDone>
    void add(Clock::time_point start, const IsDone& is_done) {
        returns.push_back(microseconds_since(start));
        while (!is_done()) {
        }
        done.push_back(microseconds_since(start));
    }
    double median_done() { return ddp::bench::quantile(done, 0.5); }
    double median_returns() { return ddp::bench::quantile(returns, 0.5); }
};

// An average of few elements: at one rank a kernel of NCCL's.
struct Calls {
    Times ours;
    Times raw;      // NCCL's call alone, on the program's stream
    Times ordered;  // on a stream of its own after the program's, as ours: three calls of CUDA more
};

// Streams and events for what is ordered by hand.
struct ByHand {
    ~ByHand() {
        api.synchronize(own);
        api.destroy_event(before);
        api.destroy_event(end);
        api.destroy_stream(own);
        api.destroy_stream(stream);
    }
    ddp::device::DeviceApi& api = ddp::device::device_api();
    CUstream_st* stream = api.make_stream(ddp::device::Priority::high);
    CUstream_st* own = api.make_stream(ddp::device::Priority::high);
    CUevent_st* before = api.make_event();
    CUevent_st* end = api.make_event();
};

Calls time_calls(ddp::ProcessGroup& group, int rounds) {
    constexpr int warm_up = 200;
    constexpr std::size_t elements = 256;
    auto& api = ddp::device::device_api();
    const auto& nccl = ddp::nccl::NcclLibrary::load();
    ddp::device::Buffer memory;
    void* const data = memory.reserve(group.device(), elements * sizeof(float));
    api.set_zero(data, elements * sizeof(float), {});
    api.synchronize({});
    const ddp::TensorView view(data, {elements}, ddp::DType::float32, group.device());
    const ByHand hand;
    Calls calls;
    for (int round = 0; round < rounds + warm_up; ++round) {
        if (round == warm_up) calls = {};
        auto start = begin_at_rest();
        ddp::Work work = group.all_reduce(view, ddp::ReduceOp::avg, hand.stream);
        calls.ours.add(start, [&] { return work.is_completed(); });
        work.wait();
        const auto average_on = [&](CUstream_st* stream, ncclComm* comm) {
            check(
                nccl.operations.all_reduce(data, data, elements, ncclFloat, ncclAvg, comm, stream));
        };
        ddp::with_native_handle(group, [&](ncclComm* comm) {
            start = begin_at_rest();
            average_on(hand.stream, comm);
            calls.raw.add(start, [&] { return api.is_done(ddp::Stream(hand.stream)); });
        });
        ddp::with_native_handle(group, [&](ncclComm* comm) {
            start = begin_at_rest();
            api.record(hand.before, hand.stream);
            api.wait(hand.own, hand.before);
            average_on(hand.own, comm);
            api.record(hand.end, hand.own);
            calls.ordered.add(start, [&] { return api.is_done(hand.end); });
        });
    }
    return calls;
}

void report_calls(ddp::ProcessGroup& group, int rounds) {
    Calls calls = time_calls(group, rounds);
    if (group.rank() != 0) return;
    const double ours = calls.ours.median_done(), raw = calls.raw.median_done();
    const double ours_returns = calls.ours.median_returns();
    const double raw_returns = calls.raw.median_returns();
    std::printf(
        "{\"measure\": \"call\", \"ours_us\": %.2f, \"raw_us\": %.2f, \"over_us\": %.2f, "
        "\"ours_returns_us\": %.2f, \"raw_returns_us\": %.2f, \"over_returns_us\": %.2f}\n",
        ours, raw, ours - raw, ours_returns, raw_returns, ours_returns - raw_returns);
    std::printf(
        "{\"measure\": \"ordered call\", \"over_ordered_us\": %.2f, "
        "\"over_ordered_returns_us\": %.2f}\n",
        ours - calls.ordered.median_done(), ours_returns - calls.ordered.median_returns());
}

// GB/s of reading and writing `bytes` so many times.
template <class Launch>
double bandwidth(std::size_t bytes, int rounds, const Launch& launch) {
    constexpr int repetitions = 20;
    auto& api = ddp::device::device_api();
    std::vector<double> rates;
    for (int round = 0; round < rounds; ++round) {
        launch();
        api.synchronize({});
        const auto start = Clock::now();
        for (int i = 0; i < repetitions; ++i) launch();
        api.synchronize({});
        rates.push_back(2e-3 * static_cast<double>(bytes) * repetitions /
                        microseconds_since(start));
    }
    return ddp::bench::quantile(rates, 0.5);
}

// A model's gradients: many of a few sizes, of an alignment of their own.
void report_pack(const ddp::Device& gpu, std::size_t total, int rounds) {
    auto& api = ddp::device::device_api();
    ddp::device::Buffer from, to;
    auto* const source = reinterpret_cast<float*>(from.reserve(gpu, total * sizeof(float)));
    auto* const packed = reinterpret_cast<float*>(to.reserve(gpu, total * sizeof(float)));
    api.set_zero(source, total * sizeof(float), {});
    std::vector<ddp::device::PackItem> items;
    constexpr std::size_t sizes[] = {1 << 20, 1 << 10, 3 << 18, 768, 1 << 12};
    for (std::size_t at = 0, i = 0; at + (1 << 20) <= total; at += sizes[i++ % 5]) {
        items.push_back({source + at, sizes[i % 5], at});
    }
    const std::size_t elements = items.back().offset + items.back().elements;
    const ddp::TensorView view(packed, {static_cast<std::int64_t>(elements)}, ddp::DType::float32,
                               gpu);
    const std::size_t bytes = elements * sizeof(float);
    const double pack = bandwidth(bytes, rounds, [&] { api.pack(items, view, 0.5, {}); });
    const double copy = bandwidth(bytes, rounds, [&] { api.copy(packed, source, bytes, {}); });
    std::printf(
        "{\"measure\": \"pack\", \"tensors\": %zu, \"bytes\": %zu, \"pack_gbs\": %.0f, "
        "\"copy_gbs\": %.0f, \"share\": %.3f}\n",
        items.size(), bytes, pack, copy, pack / copy);
}

// Of the whole card; nothing where nvidia-smi does not say.
std::optional<int> memory_used_mib() {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answer(
        ::popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits", "r"),
        [](std::FILE* file) { return ::pclose(file); });
    int used = 0;
    if (answer && std::fscanf(answer.get(), "%d", &used) == 1) return used;
    return std::nullopt;
}

// More groups of the same ranks, each with its first all-reduce: the time of one, and what the
// ranks have of the card for it. DDP_NCCL_SHARE makes the difference.
void report_groups(ddp::ProcessGroup& group, int count) {
    ddp::Tensor values = group.allocate({1 << 20}, ddp::DType::float32, group.device());
    group.all_reduce(values.view()).wait();
    const auto before = group.rank() == 0 ? memory_used_mib() : std::nullopt;
    group.barrier().wait();
    const auto start = Clock::now();
    std::vector<ddp::ProcessGroup> parts;
    for (int i = 0; i < count; ++i) {
        parts.push_back(group.split({}));
        parts.back().all_reduce(values.view()).wait();
    }
    group.barrier().wait();
    const double took = microseconds_since(start);
    if (group.rank() == 0) {
        const auto after = memory_used_mib();
        std::printf("{\"measure\": \"groups\", \"split_ms\": %.2f", took / 1e3 / count);
        if (before && after) {
            std::printf(", \"split_mib\": %.1f", 1.0 * (*after - *before) / group.size() / count);
        }
        std::printf("}\n");
    }
    group.barrier().wait();
}

// The context, which any program on a GPU makes, is there before.
ddp::ProcessGroup join_and_report() {
    auto& api = ddp::device::device_api();
    auto start = Clock::now();
    api.use(0);
    api.free(api.allocate(1));
    const double context = microseconds_since(start);
    start = Clock::now();
    auto group = ddp::init_process_group({.backend = ddp::Backend::nccl});
    const double joined = microseconds_since(start);
    if (group.rank() == 0) {
        std::printf("{\"measure\": \"start\", \"context_ms\": %.1f, \"group_ms\": %.1f}\n",
                    context / 1e3, joined / 1e3);
    }
    return group;
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        const bool quick = argc == 2 && std::string_view(argv[1]) == "--quick";
        if (argc > 1 && !quick) throw ddp::UsageError("ddp-gpu-cost: takes --quick or nothing");
        auto group = join_and_report();
        if (group.rank() == 0) {
            std::printf("{\"measure\": \"device\", \"name\": \"%s\", \"nccl\": \"%s\"}\n",
                        ddp::device::device_api().describe(group.device().index).c_str(),
                        ddp::nccl::version_text(ddp::nccl::NcclLibrary::load().version).c_str());
        }
        constexpr std::size_t mebi = std::size_t{1} << 20;
        report_calls(group, quick ? 20 : group.size() > 1 ? 200 : 2'000);
        if (group.size() > 1) report_groups(group, quick ? 1 : 8);
        if (group.size() == 1) {
            report_pack(group.device(), (quick ? 4 : 64) * mebi, quick ? 1 : 7);
        }
    });
}
