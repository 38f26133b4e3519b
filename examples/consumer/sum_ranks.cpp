// The smallest worker: adds up the ranks' numbers and checks the sum against its argument.
#include <ddp/ddp.hpp>

#include <cstdlib>

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        auto group = ddp::init_process_group();
        const int sum = group.all_reduce(group.rank());
        if (argc > 1 && sum != std::atoi(argv[1])) throw ddp::Error("a wrong sum");
    });
}
