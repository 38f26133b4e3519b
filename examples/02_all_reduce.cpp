// The collectives on a small vector: rank r begins with [r + 1, 10 (r + 1), 100 (r + 1)].
//   run:  ddp-launch --nproc-per-node=2 ./02_all_reduce
//   expected, and the same from rank 1:
//     rank 0 of 2: sum [3, 30, 300]
//     rank 0 of 2: average [1.5, 15, 150]
//     rank 0 of 2: from rank 0 [1, 10, 100]
//     rank 0 of 2: gathered [1, 10, 100, 2, 20, 200]
//     rank 0 of 2: largest rank 1
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<float> values_of_rank(int rank) {
    const auto value = static_cast<float>(rank + 1);
    return {value, 10 * value, 100 * value};
}

std::string to_text(const std::vector<float>& values) {
    std::ostringstream text;
    for (const float value : values) text << (text.tellp() == 0 ? "[" : ", ") << value;
    text << "]";
    return text.str();
}

}  // namespace

int main() {
    return ddp::run_worker([] {
        auto group = ddp::init_process_group();
        const auto mine = values_of_rank(group.rank());

        auto sum = mine;
        auto average = mine;
        auto from_rank_0 = mine;
        auto input = mine;
        std::vector<float> gathered(mine.size() * static_cast<std::size_t>(group.size()));

        // Collectives return at once; the memory is in use until wait() has returned.
        auto first = group.all_reduce(sum);
        auto second = group.all_reduce(average, ddp::ReduceOp::avg);
        auto third = group.broadcast(from_rank_0, ddp::Root{0});
        auto fourth = group.all_gather(input, gathered);
        for (auto* work : {&first, &second, &third, &fourth}) work->wait();
        const int largest_rank = group.all_reduce(group.rank(), ddp::ReduceOp::max);

        const std::string me =
            "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) + ": ";
        std::cout << me + "sum " + to_text(sum) + "\n" + me + "average " + to_text(average) + "\n" +
                         me + "from rank 0 " + to_text(from_rank_0) + "\n" + me + "gathered " +
                         to_text(gathered) + "\n" + me + "largest rank " +
                         std::to_string(largest_rank) + "\n"
                  << std::flush;
    });
}
