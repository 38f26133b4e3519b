// ddp/testing_ranks.hpp without GoogleTest: each word names a test to run. For testing_test.
#include <ddp/testing_ranks.hpp>

#include <unistd.h>

#include <cstdio>
#include <string>

namespace {

using ddp::ProcessGroup;
using ddp::testing::RankReporter;
using ddp::testing::RankTest;

void run(const std::string& name) {
    RankTest test(name, {name});
    const std::string made = test.made_once([] { return std::to_string(::getpid()); });
    const auto body = [&](RankReporter& reporter, const std::function<ProcessGroup()>& join) {
        ProcessGroup group = join();
        if (group.all_reduce(std::stoi(made), ddp::ReduceOp::max) != std::stoi(made)) {
            reporter.failure("another value");
        }
        if (name == "fails" && group.rank() == 1) reporter.failure("on purpose");
    };
    test.run(2, [](RankReporter&, const auto&) {});
    const auto failures = test.run(2, body);
    std::printf("%s: %zu failures\n", name.c_str(), failures.size());
    for (const auto& failure : failures) {
        std::printf("rank %d: %s\n", failure.rank, failure.message.c_str());
    }
}

}  // namespace

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) run(argv[i]);
    return 0;
}
