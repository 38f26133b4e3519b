// A worker that trains as jobs do, and makes no mistake:
//
//   restless_worker STEPS FOLDER SEED
//
// A step takes each rank 1 ms by the median, log-normal, and one in a thousand 300 ms more; each
// 1,000 steps there is a checkpoint in FOLDER, and before it rank 0 evaluates for up to 1 s.
#include <ddp/checkpoint.hpp>
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Seconds = std::chrono::duration<double>;

class Program {
public:
    Program(const std::string& folder, unsigned seed)
        : group_(ddp::init_process_group()),
          checkpoints_(folder, group_),
          random_(seed * 1'000 + static_cast<unsigned>(group_.rank())) {}

    void run(std::int64_t steps) {
        for (std::int64_t step = 1; step <= steps; ++step) {
            compute();
            group_.all_reduce(gradients_).wait();
            group_.publish_progress(step);
            if (step % 1'000 != 0) continue;
            if (group_.rank() == 0) rest(std::uniform_real_distribution(0.0, 1.0)(random_));
            checkpoints_.save({.step = step}, {{"weights", gradients_}});
        }
    }

private:
    static void rest(double seconds) { std::this_thread::sleep_for(Seconds(seconds)); }
    void compute() {
        constexpr double median = 1e-3;
        rest(median * std::lognormal_distribution(0.0, 0.5)(random_));
        if (std::bernoulli_distribution(1e-3)(random_)) rest(0.3);
    }

    ddp::ProcessGroup group_;
    ddp::CheckpointManager checkpoints_;
    std::mt19937 random_;
    std::vector<float> gradients_ = std::vector<float>(10'000);
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 98;
    return ddp::run_worker([&] {
        Program(argv[2], static_cast<unsigned>(std::atoi(argv[3]))).run(std::atoll(argv[1]));
    });
}
