// ddp-first-all-reduce as an MPI program.
#include <mpi.h>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    float sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return sum == static_cast<float>(ranks) ? 0 : 1;
}
