// ddp-first-all-reduce as an MPI program.
#include <mpi.h>

#include <chrono>
#include <cstdio>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    float sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
    if (argc > 1) std::printf("%s %lld\n", argv[1], static_cast<long long>(now.count()));
    MPI_Finalize();
    return sum == static_cast<float>(ranks) ? 0 : 1;
}
