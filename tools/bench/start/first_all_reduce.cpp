// A worker that joins its job, all-reduces 4 bytes, checks them, and ends: how soon a job computes.
// Run:  ddp-launch --nproc_per_node=4 ddp-first-all-reduce
#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>

int main() {
    return ddp::run_worker([] {
        auto group = ddp::init_process_group();
        const float sum = group.all_reduce(1.0F);
        if (sum != static_cast<float>(group.size())) throw ddp::Error("the sum is wrong");
    });
}
