// polling_worker CALL: rank 1 sleeps in load_batch(), the others poll for it in CALL, as ranks of
// MPI do (MPI_Barrier) and who waits for NCCL on its GPU (cuStreamSynchronize). Nothing is recorded.
#include <cstdlib>
#include <ctime>
#include <string_view>

extern "C" {
void MPI_Barrier();          // NOLINT(readability-identifier-naming)
void cuStreamSynchronize();  // NOLINT(readability-identifier-naming)
}

extern "C" __attribute__((noinline)) void load_batch() {
    const timespec hour{3600, 0};
    ::nanosleep(&hour, nullptr);
}

int main(int argc, char** argv) {
    const char* const rank = std::getenv("RANK");
    if (argc != 2 || rank == nullptr) return 2;
    if (std::string_view(rank) == "1") {
        load_batch();
    } else if (std::string_view(argv[1]) == "MPI_Barrier") {
        MPI_Barrier();
    } else {
        cuStreamSynchronize();
    }
    return 0;
}
