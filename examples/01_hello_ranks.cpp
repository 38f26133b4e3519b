// Who is there: each rank says its place in the job. The smallest program on ddp.
//   run:       ddp-launch --nproc-per-node=2 ./01_hello_ranks
//   expected:  rank 0 of 2, local rank 0 of 2, pid 4711 on myhost, backend shm
//              rank 1 of 2, local rank 1 of 2, pid 4712 on myhost, backend shm
//   (in any order). Run as ./01_hello_ranks it is a world of one: "rank 0 of 1, ...".
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>

#include <unistd.h>

#include <array>
#include <iostream>
#include <string>

namespace {

std::string host_name() {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    return name.data();
}

std::string place(int index, int count) {
    return std::to_string(index) + " of " + std::to_string(count);
}

}  // namespace

int main() {
    return ddp::run_worker([] {
        auto group = ddp::init_process_group();
        // One string, written at once: lines of several ranks then do not mix.
        std::cout << "rank " + place(group.rank(), group.size()) + ", local rank " +
                         place(group.local_rank(), group.local_size()) + ", pid " +
                         std::to_string(::getpid()) + " on " + host_name() + ", backend " +
                         to_string(group.backend()) + "\n"
                  << std::flush;
    });
}
