// What polling_worker calls: nobody ever comes. Of a name by which the launcher knows that ranks
// may communicate.
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
