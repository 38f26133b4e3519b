// torchrun's documented command lines, the word changed, on hosts made of namespaces, with workers
// of PyTorch, which know nothing of ddp.
#include "launcher/launch_fixture.hpp"
#include "support/host_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ddp::testing::HostProgram;
using ddp::testing::HostWorld;
using ::testing::HasSubstr;
using Words = HostWorld::Words;

struct Line {
    const char* name;
    int hosts;
    // "NODE" is the host's number from 0.
    Words options;
};

const std::vector<Line> lines{
    {"StackedSingleNode",
     1,
     {"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nnodes=1", "--nproc-per-node=2"}},
    {"FaultTolerant",
     3,
     {"--nnodes=3", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=100",
      "--rdzv-backend=c10d", "--rdzv-endpoint=h1:29400"}},
    {"Elastic",
     3,
     {"--nnodes=1:3", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=100",
      "--rdzv-backend=c10d", "--rdzv-endpoint=h1:29400"}},
    {"ElasticWithUnderscores",
     2,
     {"--nnodes=2", "--nproc_per_node=2", "--rdzv_id=100", "--rdzv_backend=c10d",
      "--rdzv_endpoint=h1:29400"}},
    {"Static",
     2,
     {"--nproc_per_node=2", "--nnodes=2", "--node_rank=NODE", "--master_addr=10.77.0.1",
      "--master_port=1234"}},
    {"StaticOverIpv6",
     2,
     {"--nproc_per_node=2", "--nnodes=2", "--node_rank=NODE", "--master_addr=fd77::1",
      "--master_port=1234"}},
};

constexpr const char* script = R"(
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(3)
dist.all_reduce(ones)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.ones(2, 4)).sum().backward()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {ones.tolist()}", flush=True)
dist.destroy_process_group()
)";

class LaunchHostsTorch : public ::testing::TestWithParam<Line> {
protected:
    void SetUp() override {
        if (const auto reason = HostWorld::unavailable()) GTEST_SKIP() << *reason;
        if (std::system("/usr/bin/python3 -c 'import torch' >/dev/null 2>&1") == 0) return;
        const char* required = std::getenv("DDP_REQUIRE_INTEROP");
        if (required != nullptr && std::string(required) == "1") GTEST_FAIL() << "no PyTorch";
        GTEST_SKIP() << "no PyTorch: tools/install-deps.sh --interop installs it";
    }
    const testing::TemporaryFolder files_;
};

TEST_P(LaunchHostsTorch, TrainsUnderTorchrunsCommandLine) {
    const std::string program = files_.path() + "/train.py";
    std::ofstream(program) << script;
    HostWorld world(GetParam().hosts);
    std::vector<HostProgram> launchers;
    for (int host = 1; host <= world.size(); ++host) {
        Words words{DDP_LAUNCH};
        for (std::string option : GetParam().options) {
            const std::size_t node = option.find("NODE");
            if (node != option.npos) option.replace(node, 4, std::to_string(host - 1));
            words.push_back(std::move(option));
        }
        words.push_back(program);
        launchers.push_back(world.run(host, std::move(words),
                                      {"TMPDIR=" + files_.path(), "PYTHON_EXEC=/usr/bin/python3"}));
    }
    const std::string size = std::to_string(2 * world.size());
    std::string out;
    for (HostProgram& launcher : launchers) {
        EXPECT_EQ(launcher.wait(120s).exit_code, 0) << launcher.err();
        out += launcher.out();
    }
    for (int rank = 0; rank < 2 * world.size(); ++rank) {
        EXPECT_THAT(out, HasSubstr("rank " + std::to_string(rank) + " of " + size + ": [" + size +
                                   ".0, " + size + ".0, " + size + ".0]"));
    }
}

INSTANTIATE_TEST_SUITE_P(Lines, LaunchHostsTorch, ::testing::ValuesIn(lines),
                         [](const auto& line) { return line.param.name; });

}  // namespace
}  // namespace ddp::launcher
