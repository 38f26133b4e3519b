// The oneCCL peer of ddp-bench: its CPU collectives over Intel MPI's shared memory, each call timed
// as bench/method.hpp says. Started by Intel MPI's mpiexec; the ranks meet in the folder that
// DDP_BENCH_MEETING names. Built and run by peers.sh.
#include "bench/peers/driver.hpp"

#include <oneapi/ccl.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <thread>

namespace {

using namespace ddp::bench;

constexpr auto real = ccl::datatype::float32;
constexpr auto sum = ccl::reduction::sum;

class CclCase {
public:
    CclCase(ccl::communicator& comm, Kind kind, std::size_t bytes)
        : comm_(comm), kind_(kind), buffers_(kind, bytes, comm.rank(), comm.size()) {}

    DriverBuffers& buffers() { return buffers_; }
    void rewrite(int iteration) { buffers_.rewrite(iteration); }
    void barrier() { ccl::barrier(comm_).wait(); }
    int agree(int number) {
        ccl::broadcast(&number, 1, ccl::datatype::int32, 0, comm_).wait();
        return number;
    }
    void average(std::span<double> values) {
        ccl::allreduce(values.data(), values.data(), values.size(), ccl::datatype::float64, sum,
                       comm_)
            .wait();
        for (double& value : values) value /= comm_.size();
    }
    void call() {
        float* const in = buffers_.input();
        float* const out = buffers_.output();
        const std::size_t all = buffers_.layout().elements;
        const std::size_t part = buffers_.layout().part;
        switch (kind_) {
            case Kind::all_reduce:
                ccl::allreduce(in, in, all, real, sum, comm_).wait();
                break;
            case Kind::reduce:
                ccl::reduce(in, out, all, real, sum, 0, comm_).wait();
                break;
            case Kind::broadcast:
                ccl::broadcast(in, all, real, 0, comm_).wait();
                break;
            case Kind::all_gather:
                ccl::allgather(in, out, part, real, comm_).wait();
                break;
            case Kind::reduce_scatter:
                ccl::reduce_scatter(in, out, part, real, sum, comm_).wait();
                break;
            case Kind::all_to_all:
                ccl::alltoall(in, out, part, real, comm_).wait();
                break;
            case Kind::barrier:
                barrier();
                break;
            case Kind::gather:
            case Kind::scatter:
            case Kind::send_recv:
                std::fprintf(stderr, "oneccl: no such collective\n");
                std::exit(2);
        }
    }

private:
    ccl::communicator& comm_;
    Kind kind_;
    DriverBuffers buffers_;
};

// Rank 0's address, by a file that is there only when it is whole.
ccl::shared_ptr_class<ccl::kvs> meet(int rank) {
    const std::string file = std::string(std::getenv("DDP_BENCH_MEETING")) + "/oneccl";
    if (rank == 0) {
        auto kvs = ccl::create_main_kvs();
        const auto address = kvs->get_address();
        std::ofstream(file + ".part", std::ios::binary).write(address.data(), address.size());
        std::rename((file + ".part").c_str(), file.c_str());
        return kvs;
    }
    ccl::kvs::address_type address;
    while (!std::ifstream(file, std::ios::binary).read(address.data(), address.size())) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return ccl::create_kvs(address);
}

int number_in(const char* variable) { return std::atoi(std::getenv(variable)); }

}  // namespace

int main(int argc, char** argv) {
    ccl::init();
    const int rank = number_in("PMI_RANK");
    const int ranks = number_in("PMI_SIZE");
    ccl::communicator comm = ccl::create_communicator(ranks, rank, meet(rank));
    const DriverOptions options = parse_driver_options(argc, argv, "oneccl");
    for (const std::size_t bytes : options.bytes) {
        CclCase ccl_case(comm, options.kind, bytes);
        const RowTime row = measure(ccl_case, bytes, options.plan);
        auto wrong = static_cast<std::int64_t>(ccl_case.buffers().count_wrong(row.last));
        ccl::allreduce(&wrong, &wrong, 1, ccl::datatype::int64, sum, comm).wait();
        if (rank == 0) print_row(options, ranks, ccl_case.buffers().bytes(), row, wrong);
    }
    return 0;
}
