// torchrun's documented command lines, the word changed, on hosts made of namespaces: with workers of
// ddp, and with workers of PyTorch, which know nothing of it.
#include "launcher/hosts_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
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

// For tests that need Debian's PyTorch.
template <class Base>
class WithTorch : public Base {
protected:
    void SetUp() override {
        Base::SetUp();
        if (std::system("/usr/bin/python3 -c 'import torch' >/dev/null 2>&1") == 0) return;
        const char* required = std::getenv("DDP_REQUIRE_INTEROP");
        if (required != nullptr && std::string(required) == "1") GTEST_FAIL() << "no PyTorch";
        GTEST_SKIP() << "no PyTorch: tools/install-deps.sh --interop installs it";
    }
};

using LaunchHostsTorch = WithTorch<LaunchHostsLines>;

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

// A job has one launcher, and each side says so of the other's, soon.
class LaunchHostsMixed : public WithTorch<HostsTest> {
protected:
    static HostProgram torchrun(HostWorld& world, int host, Words options) {
        Words words{"/usr/bin/python3", "-m", "torch.distributed.run", "--nnodes=2"};
        words.insert(words.end(), options.begin(), options.end());
        words.insert(words.end(), {"--no_python", "true"});
        return world.run(host, std::move(words));
    }
    const Words c10d{"--rdzv_backend=c10d", "--rdzv_endpoint=10.77.0.1:29400", "--rdzv_id=j"};
};

TEST_F(LaunchHostsMixed, ATorchrunAgentThatComesIsNamedAndRefused) {
    for (const Words& meeting :
         {c10d, Words{"--node_rank=1", "--master_addr=10.77.0.1", "--master_port=29400"}}) {
        HostWorld world(2);
        Words ours{"--nnodes=2"};
        ours.insert(ours.end(), meeting.begin(), meeting.end());
        if (ours[1] == "--node_rank=1") ours[1] = "--node_rank=0";
        HostProgram head = launch(world, 1, ours, {"true"});
        HostProgram other = torchrun(world, 2, meeting);
        EXPECT_TRUE(head.wait_for_error("it is a torchrun agent; all hosts of a job need one"))
            << head.err() << other.err();
        EXPECT_NE(other.wait(60s).exit_code, 0) << "it would wait for ten minutes";
    }
}

TEST_F(LaunchHostsMixed, ATorchrunAgentWhereTheCoordinatorShouldBeIsNamed) {
    HostWorld world(2);
    Words meeting = c10d;
    meeting.emplace_back("--rdzv_conf=is_host=true");
    HostProgram head = torchrun(world, 1, meeting);
    const auto listens = [&] {
        HostProgram probe = world.run(1, bash("exec 3<>/dev/tcp/10.77.0.1/29400"));
        return probe.wait(20s).exit_code == 0;
    };
    for (int tries = 0; !listens(); ++tries) {
        ASSERT_LT(tries, 600) << head.err();
        std::this_thread::sleep_for(100ms);
    }
    Words ours{"--nnodes=2"};
    ours.insert(ours.end(), c10d.begin(), c10d.end());
    HostProgram other = launch(world, 2, ours, {"true"});
    EXPECT_TRUE(other.wait_for_error(
        "waits for the coordinator at 10.77.0.1:29400: a torchrun agent, or another PyTorch "
        "program, serves its store there; all hosts need one launcher"))
        << other.err();
}

constexpr auto name_of_line = [](const auto& line) { return line.param.name; };
INSTANTIATE_TEST_SUITE_P(Lines, LaunchHostsLines, ::testing::ValuesIn(lines), name_of_line);
INSTANTIATE_TEST_SUITE_P(Lines, LaunchHostsTorch, ::testing::ValuesIn(lines), name_of_line);

}  // namespace
}  // namespace ddp::launcher
