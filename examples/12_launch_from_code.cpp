// A program that launches its own workers: no ddp-launch on the command line.
//   run:       ./12_launch_from_code 3
//   expected:  rank 0 of 3: the ranks' numbers add up to 3      (one line from each rank, in any
//              rank 1 of 3: the ranks' numbers add up to 3       order)
//              rank 2 of 3: the ranks' numbers add up to 3
//              all 3 workers ended well
#include <ddp/launch.hpp>
#include <ddp/process_group.hpp>

#include <cstdlib>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
    const int workers = argc > 1 ? std::atoi(argv[1]) : 2;

    // Each worker runs this program too: it gets here with the same arguments, runs the function,
    // and ends there. Only the program that was started by hand goes on below.
    const auto result = ddp::launch({.nproc_per_node = workers}, [] {
        auto group = ddp::init_process_group();
        const int sum = group.all_reduce(group.rank());
        std::cout << "rank " + std::to_string(group.rank()) + " of " +
                         std::to_string(group.size()) + ": the ranks' numbers add up to " +
                         std::to_string(sum) + "\n";
    });
    if (!result.ok()) return result.exit_code;  // ddp-launch has said why; so does result.report
    std::cout << "all " << workers << " workers ended well\n";
}
