// What polling_worker calls: nobody ever comes.
namespace {

volatile bool has_come = false;

void poll() {
    while (!has_come) {
    }
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) void MPI_Barrier() { poll(); }
__attribute__((visibility("default"))) void cuStreamSynchronize() { poll(); }
}
