// torchrun's documented command lines, the word changed, on hosts made of namespaces: with workers of
// ddp, and with workers of PyTorch, which know nothing of it.
#include "launcher/hosts_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using namespace testing;  // hosts_fixture.hpp

struct Line {
    const char* name;
    int hosts;
    // "NODE" is the host's number from 0.
    Words options;
};

const std::vector<Line> lines{
    {"Standalone", 1, {"--standalone", "--nnodes=1", "--nproc-per-node=2"}},
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
    {"FixedWithUnderscores",
     3,
     {"--nnodes=3", "--nproc_per_node=2", "--rdzv_id=100", "--rdzv_backend=c10d",
      "--rdzv_endpoint=h1:29400"}},
    {"Static",
     3,
     {"--nproc_per_node=2", "--nnodes=3", "--node_rank=NODE", "--master_addr=10.77.0.1",
      "--master_port=1234"}},
    {"StaticOverIpv6",
     3,
     {"--nproc_per_node=2", "--nnodes=3", "--node_rank=NODE", "--master_addr=fd77::1",
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

class LaunchHostsLines : public HostsTest, public ::testing::WithParamInterface<Line> {
protected:
    // What all ranks wrote, when all launchers have ended well.
    std::string run(const std::string& program) {
        HostWorld world(GetParam().hosts);
        std::vector<HostProgram> launchers;
        for (int host = 1; host <= world.size(); ++host) {
            Words options = GetParam().options;
            for (std::string& option : options) {
                const std::size_t node = option.find("NODE");
                if (node != option.npos) option.replace(node, 4, std::to_string(host - 1));
            }
            launchers.push_back(launch(world, host, options, {program},
                                       {.environment = {"PYTHON_EXEC=/usr/bin/python3"}}));
        }
        std::string out;
        for (HostProgram& launcher : launchers) {
            EXPECT_EQ(launcher.wait(120s).exit_code, 0) << launcher.err();
            out += launcher.out();
        }
        return out;
    }
    static int world_size() { return 2 * GetParam().hosts; }
};

TEST_P(LaunchHostsLines, RunWorkersOfDdp) {
    const std::string out = run(DDP_ALL_REDUCE);
    const int size = world_size();
    const std::string sum = std::to_string(size * (size + 1) / 2);
    for (int rank = 0; rank < size; ++rank) {
        EXPECT_THAT(out, HasSubstr("rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                   ": sum [" + sum + ", " + sum + "0, " + sum + "00]"));
    }
}

class LaunchHostsTorch : public LaunchHostsLines {
protected:
    void SetUp() override {
        LaunchHostsLines::SetUp();
        if (std::system("/usr/bin/python3 -c 'import torch' >/dev/null 2>&1") == 0) return;
        const char* required = std::getenv("DDP_REQUIRE_INTEROP");
        if (required != nullptr && std::string(required) == "1") GTEST_FAIL() << "no PyTorch";
        GTEST_SKIP() << "no PyTorch: tools/install-deps.sh --interop installs it";
    }
};

TEST_P(LaunchHostsTorch, TrainsUnderTorchrunsCommandLine) {
    const std::string program = files_.path() + "/train.py";
    std::ofstream(program) << script;
    const std::string out = run(program);
    const std::string size = std::to_string(world_size());
    for (int rank = 0; rank < world_size(); ++rank) {
        EXPECT_THAT(out, HasSubstr("rank " + std::to_string(rank) + " of " + size + ": [" + size +
                                   ".0, " + size + ".0, " + size + ".0]"));
    }
}

constexpr auto name_of_line = [](const auto& line) { return line.param.name; };
INSTANTIATE_TEST_SUITE_P(Lines, LaunchHostsLines, ::testing::ValuesIn(lines), name_of_line);
INSTANTIATE_TEST_SUITE_P(Lines, LaunchHostsTorch, ::testing::ValuesIn(lines), name_of_line);

}  // namespace
}  // namespace ddp::launcher
