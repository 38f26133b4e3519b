// What is settled before a start, and what the user is told about it.
#include "launcher/job_plan.hpp"

#include "launcher/parse_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;
using testing::Environment;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::parse;
using testing::Words;

JobPlan plan_of(const Words& words, const Environment& environment) {
    return plan_job(parse(words, environment), testing::lookup_in(environment));
}

const Environment two_gpus{{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"}};

TEST(JobPlan, AHostWithSeveralGpusAndOneWorkerGetsAHint) {
    EXPECT_THAT(plan_of({"true"}, two_gpus).notices,
                ElementsAre(HasSubstr("--nproc-per-node=gpu")));
    EXPECT_EQ(plan_of({"true"}, two_gpus).workers(), 1);
    EXPECT_THAT(plan_of({"-n1", "true"}, two_gpus).notices, IsEmpty());
    EXPECT_THAT(plan_of({"true"}, {{"CUDA_VISIBLE_DEVICES", "GPU-a"}}).notices, IsEmpty());
}

TEST(JobPlan, GpusAreCountedAsTheVariableShowsThem) {
    EXPECT_EQ(plan_of({"-n", "gpu", "true"}, two_gpus).workers(), 2);
    EXPECT_EQ(plan_of({"-n", "auto", "true"}, two_gpus).workers(), 2);
    EXPECT_GE(plan_of({"-n", "auto", "true"}, {{"CUDA_VISIBLE_DEVICES", ""}}).workers(), 1);
    EXPECT_THROW(plan_of({"-n", "gpu", "true"}, {{"CUDA_VISIBLE_DEVICES", "-1"}}), UsageError);
}

TEST(JobPlan, RanksAreCheckedAgainstWhatWasCounted) {
    EXPECT_EQ(plan_of({"-n", "gpu", "-t", "1:3", "true"}, two_gpus).workers(), 2);
    EXPECT_THROW(plan_of({"-n", "gpu", "-t", "2:3", "true"}, two_gpus), UsageError);
}

TEST(JobPlan, AVirtualLocalRankHasAGpuOfItsOwn) {
    EXPECT_THAT(plan_of({"-n2", "--virtual-local-rank", "true"}, two_gpus).one_gpu_each,
                ElementsAre("GPU-a", "GPU-b"));
    try {
        plan_of({"-n3", "--virtual-local-rank", "true"}, two_gpus);
        ADD_FAILURE() << "no error";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("--virtual-local-rank: 3 workers"));
        EXPECT_THAT(error.what(), HasSubstr("GPU-a,GPU-b"));
    }
}

TEST(JobPlan, SharedGpusAreSaidToBeForTestsOnce) {
    const auto said = [](const Words& words) {
        const std::vector<std::string> notices = plan_of(words, two_gpus).notices;
        return std::count_if(notices.begin(), notices.end(), [](const std::string& notice) {
            return notice.find("--oversubscribe-gpu is for tests only") != notice.npos;
        });
    };
    EXPECT_EQ(said({"-n3", "--oversubscribe-gpu", "true"}), 1);
    EXPECT_EQ(said({"-n3", "true"}), 0);
}

TEST(JobPlan, ADryRunShowsVariablesAndCommands) {
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

}  // namespace
}  // namespace ddp::launcher
