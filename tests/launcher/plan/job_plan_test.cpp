// What is settled before a start, and what the user is told about it.
#include "launcher/plan/job_plan.hpp"

#include "launcher/launch_fixture.hpp"
#include "launcher/parse_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;
using testing::Environment;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::parse;
using testing::Words;

const Environment two_gpus{{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"}};

// A host with the device files of two GPUs.
class PlanOfAJob : public ::testing::Test {
protected:
    PlanOfAJob() {
        for (const char* name : {"nvidiactl", "nvidia0", "nvidia1"}) {
            std::ofstream(devices_.path() + "/" + name);
        }
    }
    JobPlan plan_of(const Words& words, const Environment& environment) const {
        return plan_job(parse(words, environment), testing::lookup_in(environment),
                        {.gpus = {.devices = devices_.path()}});
    }
    // Of a host without GPUs.
    JobPlan plan_without_gpus(const Words& words, const Environment& environment) const {
        return plan_job(parse(words, environment), testing::lookup_in(environment),
                        {.gpus = {.devices = devices_.path() + "/none"}});
    }
    std::vector<std::string> notices_of(const Words& words) const {
        return plan_without_gpus(words, {}).notices;
    }

    testing::TemporaryFolder devices_;
};

TEST_F(PlanOfAJob, AHostWithSeveralGpusAndOneWorkerGetsAHint) {
    EXPECT_THAT(plan_of({"true"}, two_gpus).notices,
                ElementsAre(HasSubstr("--nproc-per-node=gpu")));
    EXPECT_EQ(plan_of({"true"}, two_gpus).workers(), 1);
    EXPECT_THAT(plan_of({"-n1", "true"}, two_gpus).notices, IsEmpty());
    EXPECT_THAT(plan_of({"true"}, {{"CUDA_VISIBLE_DEVICES", "GPU-a"}}).notices, IsEmpty());
}

TEST_F(PlanOfAJob, GpusAreCountedAsTheVariableShowsThem) {
    EXPECT_EQ(plan_of({"-n", "gpu", "true"}, two_gpus).workers(), 2);
    EXPECT_EQ(plan_of({"-n", "auto", "true"}, two_gpus).workers(), 2);
    EXPECT_GE(plan_of({"-n", "auto", "true"}, {{"CUDA_VISIBLE_DEVICES", ""}}).workers(), 1);
    EXPECT_THROW(plan_of({"-n", "gpu", "true"}, {{"CUDA_VISIBLE_DEVICES", "-1"}}), UsageError);
}

// As torchrun: devices that are not there are not to be had.
TEST_F(PlanOfAJob, AVariableMakesNoGpus) {
    const Environment three{{"CUDA_VISIBLE_DEVICES", "0,1,2"}};
    EXPECT_EQ(plan_without_gpus({"-n", "auto", "true"}, three).workers(),
              plan_without_gpus({"-n", "cpu", "true"}, three).workers());
    EXPECT_THROW(plan_without_gpus({"-n", "gpu", "true"}, three), UsageError);
    EXPECT_THROW(plan_without_gpus({"-n", "gpu", "true"}, two_gpus), UsageError);
    EXPECT_THAT(plan_without_gpus({"true"}, three).notices, IsEmpty());
    EXPECT_EQ(plan_of({"-n", "gpu", "true"}, three).workers(), 2);
}

TEST_F(PlanOfAJob, AVirtualLocalRankGetsWhatTheVariableListsWhateverIsThere) {
    EXPECT_THAT(plan_without_gpus({"-n2", "--virtual-local-rank", "true"},
                                  {{"CUDA_VISIBLE_DEVICES", "5,3"}})
                    .variables.one_gpu_each,
                ElementsAre("5", "3"));
}

TEST_F(PlanOfAJob, AnOptionAfterTheProgramIsSaidToBeTheProgramsOwn) {
    const Words worker{DDP_TEST_WORKER};
    const auto said = [&](Words before, const Words& after) {
        before.insert(before.end(), worker.begin(), worker.end());
        before.insert(before.end(), after.begin(), after.end());
        return notices_of(before);
    };
    EXPECT_THAT(said({}, {"-n", "4"}),
                ElementsAre(HasSubstr(std::string("ddp-launch -n 4 ") + DDP_TEST_WORKER)));
    EXPECT_THAT(said({}, {"--nproc_per_node=4", "a"}),
                ElementsAre(HasSubstr("ddp-launch --nproc_per_node=4 ")));
    EXPECT_THAT(said({"-n1"}, {"--standalone"}),
                ElementsAre(HasSubstr("ddp-launch --standalone ")));
    EXPECT_THAT(said({"-n1"}, {"-n", "4"}), IsEmpty()) << "the number of workers was given";
    EXPECT_THAT(said({}, {"--lr", "4"}), IsEmpty());
    EXPECT_THAT(said({}, {"-n"}), IsEmpty()) << "no value to move with it";
    EXPECT_THAT(said({}, {"a", "-n", "4"}), IsEmpty());
    EXPECT_THAT(notices_of({"head", "-n", "4"}), IsEmpty()) << "not the user's own program";
}

TEST_F(PlanOfAJob, FiltersThatHaveNothingToChooseFromAreSaid) {
    const std::string filter = "--duplicate-stdout-filters=a";
    EXPECT_THAT(notices_of({filter, "true"}),
                ElementsAre(HasSubstr("without both they do nothing")));
    EXPECT_THAT(notices_of({filter, "--log-dir=d", "true"}), ElementsAre(HasSubstr("--tee")));
    EXPECT_THAT(notices_of({filter, "--log-dir=d", "-t3", "true"}), IsEmpty());
}

TEST_F(PlanOfAJob, RanksAreCheckedAgainstWhatWasCounted) {
    EXPECT_EQ(plan_of({"-n", "gpu", "-t", "1:3", "true"}, two_gpus).workers(), 2);
    EXPECT_THROW(plan_of({"-n", "gpu", "-t", "2:3", "true"}, two_gpus), UsageError);
}

TEST_F(PlanOfAJob, AVirtualLocalRankHasAGpuOfItsOwn) {
    EXPECT_THAT(plan_of({"-n2", "--virtual-local-rank", "true"}, two_gpus).variables.one_gpu_each,
                ElementsAre("GPU-a", "GPU-b"));
    try {
        plan_of({"-n3", "--virtual-local-rank", "true"}, two_gpus);
        ADD_FAILURE() << "no error";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("--virtual-local-rank: 3 workers"));
        EXPECT_THAT(error.what(), HasSubstr("GPU-a,GPU-b"));
    }
}

TEST_F(PlanOfAJob, SharedGpusAreSaidToBeForTestsOnce) {
    const auto said = [this](const Words& words) {
        const std::vector<std::string> notices = plan_of(words, two_gpus).notices;
        return std::count_if(notices.begin(), notices.end(), [](const std::string& notice) {
            return notice.find("--oversubscribe-gpu is for tests only") != notice.npos;
        });
    };
    EXPECT_EQ(said({"-n3", "--oversubscribe-gpu", "true"}), 1);
    EXPECT_EQ(said({"-n3", "true"}), 0);
}

TEST_F(PlanOfAJob, ADryRunShowsVariablesAndCommands) {
    const Words words{"-n2", "--dry-run", "--wrap=1:env A=b", "echo", "a b", "${local_rank}"};
    const std::string text = describe_plan(parse(words), plan_of(words, two_gpus));
    EXPECT_THAT(text, HasSubstr("rank 0 of 2 (cuda:0 = GPU-a)\n"));
    EXPECT_THAT(text, HasSubstr("rank 1 of 2 (cuda:1 = GPU-b)\n"));
    EXPECT_THAT(text, HasSubstr("    LOCAL_RANK=1\n"));
    EXPECT_THAT(text, HasSubstr("    MASTER_PORT=<free>\n"));
    EXPECT_THAT(text, HasSubstr("    TORCHELASTIC_RUN_ID=<random>\n"));
    EXPECT_THAT(text, HasSubstr("    echo 'a b' 0\n"));
    EXPECT_THAT(text, HasSubstr("    env A=b "));
    EXPECT_THAT(text, HasSubstr("echo 'a b' 1\n"));
}

TEST_F(PlanOfAJob, ADryRunOfSeveralHostsLeavesToThemWhatTheyDecide) {
    const Words words{"-n2",           "--dry-run",        "--nnodes=3",
                      "--node-rank=1", "--master-addr=h1", "echo"};
    const std::string text =
        describe_plan(parse(words), plan_of(words, two_gpus), "3 hosts, this is host 1");
    EXPECT_THAT(text, ::testing::StartsWith("3 hosts, this is host 1\nlocal rank 0 of 2"));
    for (const char* entry :
         {"RANK=<this host's first>+1", "ROLE_RANK=<this host's first>+1",
          "WORLD_SIZE=<of all hosts>", "ROLE_WORLD_SIZE=<of all hosts>", "LOCAL_RANK=1",
          "LOCAL_WORLD_SIZE=2", "GROUP_RANK=<this host's>", "GROUP_WORLD_SIZE=<hosts>",
          "DDP_HOST_ADDR=<this host's>", "DDP_ROUND=1"}) {
        EXPECT_THAT(text, HasSubstr("    " + std::string(entry) + "\n"));
    }
}

}  // namespace
}  // namespace ddp::launcher
