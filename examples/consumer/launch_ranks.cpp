// Two workers from one program: what ddp-launch --nproc-per-node=2 would start.
#include <ddp/ddp.hpp>

int main() {
    return ddp::launch({.nproc_per_node = 2},
                       [] {
                           auto group = ddp::init_process_group();
                           if (group.all_reduce(1) != 2) throw ddp::Error("a wrong sum");
                       })
        .exit_code;
}
