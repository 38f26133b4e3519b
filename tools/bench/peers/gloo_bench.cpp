// The Gloo peer of ddp-bench: Debian's libgloo over TCP on 127.0.0.1 (or the address that
// DDP_HOST_ADDR gives), its default algorithms, each call timed as bench/method.hpp says. Started as
// ranks by ddp-launch; they meet in the folder that DDP_BENCH_MEETING names. Built and run by
// peers.sh and hosts.sh.
#include "bench/peers/driver.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <span>

namespace {

using namespace ddp::bench;
using Context = std::shared_ptr<gloo::rendezvous::Context>;
using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

class GlooCase {
public:
    GlooCase(Context context, Kind kind, std::size_t bytes)
        : context_(std::move(context)),
          kind_(kind),
          buffers_(kind, bytes, context_->rank, context_->size) {
        const Layout& layout = buffers_.layout();
        if (kind == Kind::reduce_scatter) {
            const std::vector<int> parts(static_cast<std::size_t>(context_->size),
                                         static_cast<int>(layout.part));
            reduce_scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
                context_, std::vector<float*>{buffers_.input()}, static_cast<int>(layout.elements),
                parts);
        }
        if (kind == Kind::send_recv) {
            out_ = context_->createUnboundBuffer(buffers_.input(), layout.input * sizeof(float));
            in_ = context_->createUnboundBuffer(buffers_.output(), layout.output * sizeof(float));
        }
    }

    DriverBuffers& buffers() { return buffers_; }
    void rewrite(int iteration) { buffers_.rewrite(iteration); }
    void barrier() {
        gloo::BarrierOptions options(context_);
        gloo::barrier(options);
    }
    int agree(int number) {
        gloo::BroadcastOptions options(context_);
        options.setOutput(&number, 1);
        options.setRoot(0);
        gloo::broadcast(options);
        return number;
    }
    void average(std::span<double> values) {
        all_reduce(values.data(), values.size());
        for (double& value : values) value /= context_->size;
    }
    template <class T>
    void all_reduce(T* values, std::size_t elements) {
        gloo::AllreduceOptions options(context_);
        options.setOutput(values, elements);
        void (*sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<T>;
        options.setReduceFunction(sum);
        gloo::allreduce(options);
    }
    void call() {
        switch (kind_) {
            case Kind::all_reduce:
                return all_reduce(buffers_.input(), buffers_.layout().elements);
            case Kind::reduce:
                return reduce();
            case Kind::broadcast:
                return broadcast();
            case Kind::all_gather: {
                gloo::AllgatherOptions options(context_);
                return gloo::allgather(with_both(options));
            }
            case Kind::gather:
                return gather();
            case Kind::scatter:
                return scatter();
            case Kind::reduce_scatter:
                return reduce_scatter_->run();
            case Kind::all_to_all: {
                gloo::AlltoallOptions options(context_);
                return gloo::alltoall(with_both(options));
            }
            case Kind::send_recv:
                return send_to_the_next();
            case Kind::barrier:
                return barrier();
        }
    }
    // The old algorithm leaves its result at the start of the input.
    std::size_t count_wrong(int iteration) {
        if (kind_ == Kind::reduce_scatter) {
            std::memcpy(buffers_.output(), buffers_.input(),
                        buffers_.layout().output * sizeof(float));
        }
        return buffers_.count_wrong(iteration);
    }

private:
    template <class Options>
    Options& with_both(Options& options) {
        options.setInput(buffers_.input(), buffers_.layout().input);
        options.setOutput(buffers_.output(), buffers_.layout().output);
        return options;
    }
    // Gloo's reduce uses its output as scratch memory on all ranks.
    void reduce() {
        const std::size_t elements = buffers_.layout().elements;
        if (context_->rank != 0 && scratch_.empty()) scratch_.resize(elements);
        gloo::ReduceOptions options(context_);
        options.setInput(buffers_.input(), elements);
        options.setOutput(context_->rank == 0 ? buffers_.output() : scratch_.data(), elements);
        void (*sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;
        options.setReduceFunction(sum);
        options.setRoot(0);
        gloo::reduce(options);
    }
    void broadcast() {
        gloo::BroadcastOptions options(context_);
        options.setOutput(buffers_.output(), buffers_.layout().output);
        options.setRoot(0);
        gloo::broadcast(options);
    }
    void gather() {
        gloo::GatherOptions options(context_);
        options.setInput(buffers_.input(), buffers_.layout().input);
        if (context_->rank == 0) options.setOutput(buffers_.output(), buffers_.layout().output);
        options.setRoot(0);
        gloo::gather(options);
    }
    void scatter() {
        const Layout& layout = buffers_.layout();
        gloo::ScatterOptions options(context_);
        if (context_->rank == 0) {
            std::vector<float*> parts;
            for (std::size_t at = 0; at < layout.elements; at += layout.part) {
                parts.push_back(buffers_.input() + at);
            }
            options.setInputs(parts, layout.part);
        }
        options.setOutput(buffers_.output(), layout.output);
        options.setRoot(0);
        gloo::scatter(options);
    }
    void send_to_the_next() {
        const int ranks = context_->size;
        const auto slot = static_cast<std::uint64_t>(7) << 32;
        out_->send((context_->rank + 1) % ranks, slot);
        in_->recv((context_->rank + ranks - 1) % ranks, slot);
        out_->waitSend();
        in_->waitRecv();
    }

    Context context_;
    Kind kind_;
    DriverBuffers buffers_;
    std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> reduce_scatter_;
    std::vector<float> scratch_;
    Buffer out_;
    Buffer in_;
};

int number_of(const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr ? std::atoi(value) : -1;
}

}  // namespace

int main(int argc, char** argv) {
    const int rank = number_of("RANK");
    const int ranks = number_of("WORLD_SIZE");
    const char* const meeting = std::getenv("DDP_BENCH_MEETING");
    if (rank < 0 || ranks < 1 || meeting == nullptr) {
        std::fprintf(stderr, "%s: RANK, WORLD_SIZE and DDP_BENCH_MEETING must be set\n", argv[0]);
        return 2;
    }
    const DriverOptions options = parse_driver_options(argc, argv, "gloo");
    gloo::rendezvous::FileStore store(meeting);
    const char* const address = std::getenv("DDP_HOST_ADDR");
    gloo::transport::tcp::attr attributes(address != nullptr ? address : "127.0.0.1");
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context->connectFullMesh(store, device);
    for (const std::size_t bytes : options.bytes) {
        GlooCase gloo_case(context, options.kind, bytes);
        const RowTime row = measure(gloo_case, bytes, options.plan);
        auto wrong = static_cast<std::int64_t>(gloo_case.count_wrong(row.last));
        gloo_case.all_reduce(&wrong, 1);
        if (rank == 0) print_row(options, ranks, gloo_case.buffers().bytes(), row, wrong);
    }
    return 0;
}
