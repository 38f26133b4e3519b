// Options in the real ddp-launch: each wrong one is a line and exit code 2, and what they set
// arrives in workers.
#include "launcher/bad_command_lines.hpp"
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

class LaunchOptions : public LaunchTest {};

TEST_F(LaunchOptions, EachBadCommandLineIsOneLineAndExitCode2) {
    for (const BadCommandLine& row : bad_command_lines()) {
        const LaunchResult result = launch(row.words);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
        EXPECT_THAT(result.err, StartsWith("ddp-launch: "));
        for (const std::string& part : row.message) EXPECT_THAT(result.err, HasSubstr(part));
    }
}

TEST_F(LaunchOptions, ARankThatAJobOfThisHostLacksIsRefused) {
    for (const auto& [option, words] :
         {std::pair{"--stdin=1", "--stdin: 1 is no rank of this job; they go from 0 to 0"},
          std::pair{"--ranks-filter=0,2", "--ranks-filter: 2 is no rank of this job"}}) {
        const LaunchResult result = launch({option, "true"});
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_THAT(result.err, HasSubstr(words));
    }
}

TEST_F(LaunchOptions, PetVariablesReachTheJob) {
    const LaunchResult result =
        launch(plain({}, {"print_env", "WORLD_SIZE"}), {.environment = {"PET_NPROC_PER_NODE=3"}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "WORLD_SIZE=3\nWORLD_SIZE=3\nWORLD_SIZE=3\n");
    const LaunchResult bad =
        launch(plain({}, {"exit_with", "0"}), {.environment = {"PET_STANDALONE=true"}});
    EXPECT_EQ(bad.exit_code, 2);
    EXPECT_THAT(bad.err, HasSubstr("$PET_STANDALONE: \"true\""));
}

TEST_F(LaunchOptions, TheJobsVariablesFollowTheOptions) {
    const LaunchResult result =
        launch({"--rdzv-id=job7", "--role=trainer", "--max-restarts=3",
                "--signals-to-handle=SIGTERM,SIGINT", "bash", "-c",
                "echo $TORCHELASTIC_RUN_ID $ROLE_NAME $TORCHELASTIC_MAX_RESTARTS "
                "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_SIGNALS_TO_HANDLE"});
    EXPECT_EQ(result.out, "job7 trainer 3 0 SIGTERM,SIGINT\n") << result.err;
}

TEST_F(LaunchOptions, AVirtualLocalRankSeesOneGpu) {
    const LaunchResult result = launch({"-n2", "--virtual-local-rank", "bash", "-c",
                                        "echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES"},
                                       {.environment = {"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"}});
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("0 0 GPU-a", "1 0 GPU-b")) << result.err;
}

TEST_F(LaunchOptions, OversubscribedRanksAreHostsToNccl) {
    const LaunchResult result = launch({"-n2", "--rdzv-id=job7", "--oversubscribe-gpu", "bash",
                                        "-c", "echo $DDP_OVERSUBSCRIBE_GPU $NCCL_HOSTID"});
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("1 job7-r0", "1 job7-r1"));
    EXPECT_THAT(result.err, HasSubstr("--oversubscribe-gpu is for tests only"));
}

TEST_F(LaunchOptions, WorkersSeeTheParentsGpusOtherwise) {
    const LaunchResult result = launch({"bash", "-c", "echo $CUDA_VISIBLE_DEVICES"},
                                       {.environment = {"CUDA_VISIBLE_DEVICES=1, 3"}});
    EXPECT_EQ(result.out, "1, 3\n");
}

TEST_F(LaunchOptions, LimitedThreadsAreSaidOnce) {
    // An empty variable is a set one; this takes the fixture's away.
    const LaunchResult result = launch(
        {"-n1", "bash", "-c",
         "unset OMP_NUM_THREADS; exec \"$0\" -n2 bash -c 'echo $OMP_NUM_THREADS'", DDP_LAUNCH});
    EXPECT_EQ(result.out, "1\n1\n");
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_THAT(result.err, HasSubstr("OMP_NUM_THREADS=1 for each worker"));
}

TEST_F(LaunchOptions, AWrapRunsItsRanksUnderACommand) {
    const LaunchResult result =
        launch({"-n2", "--wrap=1:env MARK='a b'", "bash", "-c", "echo $RANK $MARK"});
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("0", "1 a b")) << result.err;
    const LaunchResult missing =
        launch({"-n2", "--wrap=1:./nowhere", "bash", "-c", "echo started"});
    EXPECT_EQ(missing.exit_code, 127);
    EXPECT_EQ(missing.out, "");
    EXPECT_THAT(missing.err, HasSubstr("\"./nowhere\" not found"));
}

TEST_F(LaunchOptions, ArgumentsAreExpandedForEachWorker) {
    const LaunchResult result =
        launch({"-n2", "bash", "-c", "echo $0 $1", "log${local_rank}", "a$b"});
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("log0 a$b", "log1 a$b")) << result.err;
}

TEST_F(LaunchOptions, AScriptIsRunByPythonExec) {
    const std::string script = folder_.path() + "/train.py";
    std::ofstream(script) << "echo \"$# $1 rank $RANK\"\n";
    const LaunchResult result =
        launch({"-n2", "train.py", "${local_rank}"}, {.environment = {"PYTHON_EXEC=./python"}});
    EXPECT_EQ(result.exit_code, 127);
    EXPECT_THAT(result.err, HasSubstr("PYTHON_EXEC"));
    const std::string python = folder_.path() + "/python";
    std::ofstream(python) << "#!/bin/bash\n[ \"$1\" = -u ] && shift && exec bash \"$@\"\n";
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    const LaunchResult ran =
        launch({"-n2", "train.py", "${local_rank}"}, {.environment = {"PYTHON_EXEC=./python"}});
    EXPECT_THAT(lines_of(ran.out), UnorderedElementsAre("1 0 rank 0", "1 1 rank 1")) << ran.err;
    const LaunchResult named =
        launch({"--python=./python", "train.py", "x"}, {.environment = {"PYTHON_EXEC=/nowhere"}});
    EXPECT_EQ(named.out, "1 x rank 0\n") << named.err;
    const LaunchResult missing = launch({"trian.py"}, {.environment = {"PYTHON_EXEC=./python"}});
    EXPECT_EQ(missing.exit_code, 127);
    EXPECT_THAT(missing.err, HasSubstr("did you mean train.py?"));
    std::filesystem::remove(python);
    std::filesystem::remove(script);
}

TEST_F(LaunchOptions, DryRunAndPrintConfigStartNothing) {
    const LaunchResult dry = launch({"-n2", "--dry-run", "bash", "-c", "touch started"});
    EXPECT_EQ(dry.exit_code, 0);
    EXPECT_THAT(dry.out, HasSubstr("rank 1 of 2"));
    EXPECT_THAT(dry.out, HasSubstr("bash -c 'touch started'"));
    EXPECT_EQ(dry.err, "");
    const LaunchResult config = launch({"-n2", "--print-config"});
    EXPECT_EQ(config.exit_code, 0);
    EXPECT_THAT(config.out, HasSubstr("--nproc-per-node"));
}

using Variables = std::map<std::string, std::string>;

Variables variables_of(const std::string& text, const std::string& indent) {
    Variables variables;
    for (const std::string& line : lines_of(text)) {
        const std::size_t equals = line.find('=');
        if (!line.starts_with(indent) || equals == line.npos) continue;
        const std::string name = line.substr(indent.size(), equals - indent.size());
        if (name.find(' ') == name.npos) variables[name] = line.substr(equals + 1);
    }
    return variables;
}

// "<free>" and such stand for what a start decides.
bool is_shown_as(const std::string& value, const std::string& shown) {
    const std::size_t begin = shown.find('<');
    if (begin == shown.npos) return value == shown;
    const std::string end = shown.substr(shown.rfind('>') + 1);
    return value.size() > begin + end.size() && value.starts_with(shown.substr(0, begin)) &&
           value.ends_with(end);
}

bool is_launchers(const std::string& name) {
    static const std::regex ours(
        "(.*_)?RANK|.*WORLD_SIZE|MASTER_.*|ROLE_.*|TORCHELASTIC_.*|DDP_.*|OMP_NUM_THREADS|"
        "TORCH_NCCL_.*|NCCL_.*|CUDA_VISIBLE_DEVICES");
    return std::regex_match(name, ours);
}

TEST_F(LaunchOptions, ADryRunShowsTheVariablesThatWorkersGet) {
    const TemporaryFolder results;
    const std::string folder = results.path();
    // What the fixture gives the launcher, beside this process's.
    Variables launchers{{"CUDA_VISIBLE_DEVICES", "0,1"}, {"OMP_NUM_THREADS", "1"}};
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        const std::size_t equals = text.find('=');
        launchers.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    const Launch::Words program{"sh", "-c", "env > " + folder + "/env_$RANK"};
    for (const Launch::Words& options :
         {Launch::Words{"-n2"}, Launch::Words{"-n2", "--agent-store=off"},
          Launch::Words{"-n2", "--log-dir=" + folder},
          Launch::Words{"-n2", "--break-on-failure", "--oversubscribe-gpu", "--store-peers=any",
                        "--role=r", "--max-restarts=3", "--rdzv-id=job",
                        "--signals-to-handle=SIGTERM"},
          Launch::Words{"-n2", "--virtual-local-rank"}}) {
        const auto with = [&](Launch::Words words) {
            words.insert(words.begin(), options.begin(), options.end());
            words.insert(words.end(), program.begin(), program.end());
            return launch(words, {.environment = {"CUDA_VISIBLE_DEVICES=0,1"}});
        };
        const std::string shown = with({"--dry-run"}).out;
        ASSERT_NE(shown, "") << options.back();
        ASSERT_EQ(with({}).exit_code, 0) << options.back();
        for (const std::string rank : {"0", "1"}) {
            SCOPED_TRACE(options.back() + " of rank " + rank);
            const std::size_t begin = shown.find("rank " + rank + " of 2");
            const Variables dry =
                variables_of(shown.substr(begin, shown.find("\nrank", begin) - begin), "    ");
            std::ifstream file(folder + "/env_" + rank);
            const Variables real = variables_of({std::istreambuf_iterator<char>(file), {}}, "");
            EXPECT_GT(dry.size(), 15U);
            for (const auto& [name, value] : dry) {
                ASSERT_TRUE(real.contains(name)) << name;
                EXPECT_TRUE(is_shown_as(real.at(name), value))
                    << name << "=" << real.at(name) << ", shown as " << value;
            }
            for (const auto& [name, value] : real) {
                const bool inherited = launchers.contains(name) && launchers.at(name) == value;
                EXPECT_TRUE(inherited || !is_launchers(name) || dry.contains(name)) << name;
            }
        }
    }
}

}  // namespace
}  // namespace ddp::launcher::testing
