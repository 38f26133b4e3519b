// The MPI peers of ddp-bench: one source for Open MPI and MPICH, blocking calls, each timed as
// bench/method.hpp says. Built and run by peers.sh.
#include "bench/peers/driver.hpp"

#include <mpi.h>

#include <span>

namespace {

using namespace ddp::bench;

class MpiCase {
public:
    MpiCase(Kind kind, std::size_t bytes, int rank, int ranks)
        : kind_(kind), rank_(rank), ranks_(ranks), buffers_(kind, bytes, rank, ranks) {}

    DriverBuffers& buffers() { return buffers_; }
    void rewrite(int iteration) { buffers_.rewrite(iteration); }
    void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
    int agree(int number) {
        MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
        return number;
    }
    void average(std::span<double> values) {
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE,
                      MPI_SUM, MPI_COMM_WORLD);
        for (double& value : values) value /= ranks_;
    }
    void call() {
        float* const in = buffers_.input();
        float* const out = buffers_.output();
        const auto all = static_cast<int>(buffers_.layout().elements);
        const auto part = static_cast<int>(buffers_.layout().part);
        const MPI_Comm world = MPI_COMM_WORLD;
        switch (kind_) {
            case Kind::all_reduce:
                MPI_Allreduce(MPI_IN_PLACE, in, all, MPI_FLOAT, MPI_SUM, world);
                break;
            case Kind::reduce:
                MPI_Reduce(in, out, all, MPI_FLOAT, MPI_SUM, 0, world);
                break;
            case Kind::broadcast:
                MPI_Bcast(in, all, MPI_FLOAT, 0, world);
                break;
            case Kind::all_gather:
                MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world);
                break;
            case Kind::gather:
                MPI_Gather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, world);
                break;
            case Kind::scatter:
                MPI_Scatter(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, world);
                break;
            case Kind::reduce_scatter:
                MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, world);
                break;
            case Kind::all_to_all:
                MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world);
                break;
            case Kind::send_recv:
                MPI_Sendrecv(in, all, MPI_FLOAT, (rank_ + 1) % ranks_, 0, out, all, MPI_FLOAT,
                             (rank_ + ranks_ - 1) % ranks_, 0, world, MPI_STATUS_IGNORE);
                break;
            case Kind::barrier:
                MPI_Barrier(world);
                break;
        }
    }

private:
    Kind kind_;
    int rank_;
    int ranks_;
    DriverBuffers buffers_;
};

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    int ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const DriverOptions options = parse_driver_options(argc, argv, "mpi");
    for (const std::size_t bytes : options.bytes) {
        MpiCase mpi_case(options.kind, bytes, rank, ranks);
        const RowTime row = measure(mpi_case, bytes, options.plan);
        auto wrong = static_cast<long long>(mpi_case.buffers().count_wrong(row.last));
        MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) print_row(options, ranks, mpi_case.buffers().bytes(), row, wrong);
    }
    MPI_Finalize();
    return 0;
}
