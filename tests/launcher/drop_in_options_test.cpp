// The other half of drop_in_test.cpp: behaviours of torchrun's own tests that are about its
// options.
//
// launcher/test_run.py
//   launch_user_script_*                        ThePlainFlagsOfAStaticJobAreTaken
//   ..._python, launch_user_script_..._no_python,
//     module                                    WhatPythonIsGiven, NoPythonAndModuleDoNotGoTogether
//   launch_with_env_vars                        Variables*
//   nproc_launch_*, nproc_gpu_*                 WorkersCanBeCounted, AnUnknownCountIsRefused
//   min_max_nodes_parse                         NodesOfThreePartsAreRefused
//   launch_elastic                              AJobThatOneHostWillDoForRunsAsItsTestsSay
//   launch_run_path                             AScriptOfAnyNameIsPythonsWithRunPath
//   virtual_local_rank                          AVirtualLocalRankIs0OnOneDevice,
//   ...NeedsEnoughDevices capture_logs_using_default_logs_specs ThePrefixIsFilledInForEachRank
// launch_test.py
//   without --use-env                           TheLocalRankIsPassedOnRequest
// test_api.py, elastic/multiprocessing/test_api.py
//   sets_signals_env_var, custom, USR           AListedSignalStopsTheJobWithThatSignal
// elastic/multiprocessing/api_test.py
//   from_value, to_map, binary_redirect_and_tee StreamsGoWhereRedirectsAndTeeSay
//   from_str_bad_input                          BadMapsOfStreamsAreRefused
//   invalid_log_dir                             ALogFolderThatIsAFileIsRefused
// errors/api_test.py
//   child error is copied                       TheRootErrorIsCopiedToTheLaunchersOwnErrorFile
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace ddp::launcher::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class DropInOptions : public LaunchTest {
protected:
    std::vector<std::string> sorted_out(const Launch::Words& arguments,
                                        const LaunchSettings& settings = {}) {
        const LaunchResult result = launch(arguments, settings);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        std::vector<std::string> lines = lines_of(result.out);
        std::sort(lines.begin(), lines.end());
        return lines;
    }
    void expect_refused(const Launch::Words& options, const std::string& part,
                        const LaunchSettings& settings = {}) {
        Launch::Words arguments = options;
        arguments.insert(arguments.end(), {"echo", "started"});
        const LaunchResult result = launch(arguments, settings);
        EXPECT_EQ(result.exit_code, 2) << part;
        EXPECT_EQ(result.out, "") << part;
        EXPECT_THAT(result.err, HasSubstr(part));
    }
    std::string path(const std::string& name) const { return files_.path() + "/" + name; }
    // The path below the log folder of the one file that ends so, "" if there is none.
    std::string log_file(const std::string& end) const {
        for (const auto& entry : fs::recursive_directory_iterator(path("logs"))) {
            if (entry.path().string().ends_with(end)) return entry.path();
        }
        return "";
    }
    std::string log_text(const std::string& end) const { return text_of(log_file(end)); }
    static std::string text_of(const std::string& file) {
        std::ifstream stream(file);
        return {std::istreambuf_iterator<char>(stream), {}};
    }

    const TemporaryFolder files_;
    const std::string log_dir_ = "--log_dir=" + path("logs");
};

const std::string speak = "echo out $RANK; echo err $RANK >&2";

TEST_F(DropInOptions, ThePlainFlagsOfAStaticJobAreTaken) {
    EXPECT_THAT(
        sorted_out({"--nnodes=1", "--nproc_per_node=2", "--rdzv_backend=c10d",
                    "--rdzv_endpoint=localhost:0", "--rdzv_id=run-7", "--node_rank=0",
                    "--monitor_interval=1", "--max_restarts=3", "--role=trainer", "--no_python",
                    "bash", "-c", "echo $RANK $ROLE_NAME $TORCHELASTIC_RUN_ID"}),
        ElementsAre("0 trainer run-7", "1 trainer run-7"));
}

TEST_F(DropInOptions, AJobThatOneHostWillDoForRunsAsItsTestsSay) {
    EXPECT_THAT(sorted_out({"--nnodes=1:2", "--nproc-per-node=2", "--rdzv-backend=c10d",
                            "--rdzv-endpoint=localhost:0", "--rdzv-id=run-7",
                            "--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'",
                            "--monitor-interval=1", "--start-method=spawn", "--logs-specs=default",
                            "--event-log-handler=null", "--no-python", "bash", "-c",
                            "echo $RANK of $WORLD_SIZE in $GROUP_RANK of $GROUP_WORLD_SIZE"}),
                ElementsAre("0 of 2 in 0 of 1", "1 of 2 in 0 of 1"));
}

TEST_F(DropInOptions, AJobThatMightHaveHadMoreHostsIsSaidToRunOnThisOne) {
    EXPECT_THAT(launch({"--nnodes=1:3", "true"}).err,
                HasSubstr("--nnodes: of 1 to 3 hosts this one runs the job alone"));
    EXPECT_THAT(launch({"true"}, {.environment = {"PET_NNODES=1:2"}}).err,
                HasSubstr("$PET_NNODES: of 1 to 2 hosts this one runs the job alone"));
    for (const char* one_host : {"--nnodes=1:1", "--standalone"}) {
        EXPECT_EQ(launch({one_host, "true"}, {.environment = {"PET_NNODES=1:2"}}).err, "");
    }
}

TEST_F(DropInOptions, AScriptOfAnyNameIsPythonsWithRunPath) {
    std::ofstream(path("train")) << "\n";
    EXPECT_EQ(launch({"--run-path", path("train"), "--lr", "1"},
                     {.environment = {"PYTHON_EXEC=/bin/echo"}})
                  .out,
              "-u " + path("train") + " --lr 1\n");
}

TEST_F(DropInOptions, UnambiguousBeginningsOfOptionsWillDo) {
    EXPECT_THAT(
        sorted_out({"--nproc=2", "--max=1", "bash", "-c", "echo $RANK $TORCHELASTIC_MAX_RESTARTS"}),
        ElementsAre("0 1", "1 1"));
    expect_refused({"--master=127.0.0.1"}, "--master");
}

TEST_F(DropInOptions, WhatPythonIsGiven) {
    const LaunchSettings python_says{.environment = {"PYTHON_EXEC=/bin/echo"}};
    std::ofstream(path("train.py")) << "\n";
    EXPECT_EQ(launch({path("train.py"), "--lr", "1"}, python_says).out,
              "-u " + path("train.py") + " --lr 1\n");
    EXPECT_EQ(launch({"--module", "pkg.train", "--lr", "1"}, python_says).out,
              "-u -m pkg.train --lr 1\n");
    EXPECT_EQ(launch({"-m", "pkg.train"}, python_says).out, "-u -m pkg.train\n");
}

TEST_F(DropInOptions, NoPythonAndModuleDoNotGoTogether) {
    expect_refused({"--no-python", "--module"}, "--module");
}

TEST_F(DropInOptions, VariablesGiveTheDefaultsOfOptions) {
    const LaunchSettings variables{.environment = {"PET_NNODES=1", "PET_NPROC_PER_NODE=2",
                                                   "PET_MAX_RESTARTS=4", "PET_RDZV_ID=run-8",
                                                   "PET_ROLE=trainer", "PET_NO_PYTHON=1",
                                                   "PET_MODULE=0", "PET_MONITOR_INTERVAL=5"}};
    const Launch::Words show{"bash", "-c",
                             "echo $RANK of $WORLD_SIZE $TORCHELASTIC_MAX_RESTARTS "
                             "$TORCHELASTIC_RUN_ID $ROLE_NAME"};
    EXPECT_THAT(sorted_out(show, variables),
                ElementsAre("0 of 2 4 run-8 trainer", "1 of 2 4 run-8 trainer"));
    Launch::Words wins{"--nproc_per_node=1", "--max-restarts=0"};
    wins.insert(wins.end(), show.begin(), show.end());
    EXPECT_THAT(sorted_out(wins, variables), ElementsAre("0 of 1 0 run-8 trainer"));
}

TEST_F(DropInOptions, VariablesThatContradictAreRefused) {
    expect_refused({}, "PET_NO_PYTHON", {.environment = {"PET_NO_PYTHON=1", "PET_MODULE=1"}});
    expect_refused({}, "PET_NPROC_PER_NODE", {.environment = {"PET_NPROC_PER_NODE=some"}});
}

TEST_F(DropInOptions, WorkersCanBeCounted) {
    cpu_set_t allowed;
    ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int first = 0;
    while (!CPU_ISSET(first, &allowed)) ++first;
    const auto world_size = [&](const std::string& count, const std::string& devices) {
        return launch({"taskset", "-c", std::to_string(first), DDP_LAUNCH,
                       "--nproc_per_node=" + count, "bash", "-c", "echo $WORLD_SIZE"},
                      {.environment = {"CUDA_VISIBLE_DEVICES=" + devices}})
            .out;
    };
    EXPECT_EQ(world_size("cpu", ""), "1\n");
    EXPECT_EQ(world_size("auto", ""), "1\n") << "without GPUs, CPUs";
    EXPECT_EQ(world_size("1", ""), "1\n");
}

TEST_F(DropInOptions, AnUnknownCountIsRefused) {
    expect_refused({"--nproc_per_node=unknown"}, "unknown");
    expect_refused({"--nproc_per_node=gpu"}, "gpu", {.environment = {"CUDA_VISIBLE_DEVICES="}});
}

TEST_F(DropInOptions, NodesOfThreePartsAreRefused) {
    for (const std::string nodes : {"2:20:30", "0", "2:1", "x"}) {
        expect_refused({"--nnodes=" + nodes}, nodes);
    }
}

TEST_F(DropInOptions, AVirtualLocalRankIs0OnOneDevice) {
    EXPECT_THAT(sorted_out({"--nproc_per_node=2", "--virtual-local-rank", "bash", "-c",
                            "echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES"},
                           {.environment = {"CUDA_VISIBLE_DEVICES=5,3"}}),
                ElementsAre("0 0 5", "1 0 3"));
}

TEST_F(DropInOptions, AVirtualLocalRankNeedsEnoughDevices) {
    expect_refused({"--nproc_per_node=3", "--virtual-local-rank"}, "--virtual-local-rank",
                   {.environment = {"CUDA_VISIBLE_DEVICES=5,3"}});
}

TEST_F(DropInOptions, TheLocalRankIsPassedOnRequest) {
    EXPECT_THAT(sorted_out({"--nproc_per_node=2", "--pass-local-rank", "echo", "a"}),
                ElementsAre("--local_rank=0 a", "--local_rank=1 a"));
    EXPECT_THAT(sorted_out({"--nproc_per_node=2", "--use_env", "echo", "a"}),
                ElementsAre("a", "a"));
}

TEST_F(DropInOptions, TheLocalRankIsFilledIntoArguments) {
    EXPECT_THAT(sorted_out({"--nproc_per_node=2", "echo", "gpu${local_rank}", "$${local_rank}"}),
                ElementsAre("gpu0 ${local_rank}", "gpu1 ${local_rank}"));
}

TEST_F(DropInOptions, AListedSignalStopsTheJobWithThatSignal) {
    const std::string listed = "SIGTERM,SIGUSR1,SIGUSR2";
    EXPECT_EQ(launch({"--signals_to_handle=" + listed, "bash", "-c",
                      "echo $TORCHELASTIC_SIGNALS_TO_HANDLE"})
                  .out,
              listed + "\n");
    Launch job(folder_,
               {"--signals-to-handle=" + listed, "--nproc_per_node=2", "bash", "-c",
                "trap 'echo caught; exit' USR1; echo ready; while true; do sleep 0.01; done"});
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    job.signal(SIGUSR1);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGUSR1);
    EXPECT_THAT(result.out, HasSubstr("caught\ncaught\n"));
}

// torchrun's layout: <run id>_<random>/attempt_<restart>/<local rank>/.
TEST_F(DropInOptions, StreamsGoWhereRedirectsAndTeeSay) {
    const LaunchResult result = launch({"--nproc_per_node=3", "--rdzv_id=run-9", log_dir_,
                                        "--redirects=0:3,1:1", "--tee=2:3", "bash", "-c", speak});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out,
                AllOf(Not(HasSubstr("out 0")), Not(HasSubstr("out 1")), HasSubstr("out 2")));
    EXPECT_THAT(result.err, AllOf(Not(HasSubstr("err 0")), HasSubstr("err 1"), HasSubstr("err 2")));
    EXPECT_EQ(log_text("/attempt_0/0/stdout.log"), "out 0\n");
    EXPECT_EQ(log_text("/attempt_0/0/stderr.log"), "err 0\n");
    EXPECT_EQ(log_text("/attempt_0/1/stdout.log"), "out 1\n");
    EXPECT_EQ(log_text("/attempt_0/2/stdout.log"), "out 2\n");
    EXPECT_EQ(log_text("/attempt_0/2/stderr.log"), "err 2\n");
    EXPECT_THAT(log_file("/attempt_0/0/stdout.log"), HasSubstr("/logs/run-9_"));
}

TEST_F(DropInOptions, EachAttemptHasItsLogsAndErrorFiles) {
    const LaunchResult result = launch({"--max_restarts=1", log_dir_, "-r", "3", "bash", "-c",
                                        "echo '{\"message\": \"E: sad\"}' "
                                        ">$TORCHELASTIC_ERROR_FILE; echo $TORCHELASTIC_ERROR_FILE; "
                                        "exit 3"});
    EXPECT_EQ(result.exit_code, 3);
    for (const char* attempt : {"/attempt_0", "/attempt_1"}) {
        const std::string error_file = log_file(std::string(attempt) + "/0/error.json");
        EXPECT_NE(error_file, "") << attempt;
        EXPECT_EQ(log_text(std::string(attempt) + "/0/stdout.log"), error_file + "\n");
    }
}

TEST_F(DropInOptions, ManyRanksMayBeListed) {
    const LaunchResult result = launch({"--nproc_per_node=12", log_dir_, "-r", "11:3", "-t", "10:1",
                                        "bash", "-c", "echo out $RANK"});
    EXPECT_EQ(lines_of(result.out).size(), 11U);
    EXPECT_EQ(log_text("/11/stdout.log"), "out 11\n");
    EXPECT_EQ(log_text("/10/stdout.log"), "out 10\n");
}

TEST_F(DropInOptions, BadMapsOfStreamsAreRefused) {
    for (const std::string map : {"0:1,", "11", "0:1,1", "1,0:1", "4", "0:4"}) {
        expect_refused({log_dir_, "--redirects=" + map}, map);
        expect_refused({log_dir_, "--tee=" + map}, map);
    }
}

TEST_F(DropInOptions, ALogFolderThatIsAFileIsRefused) {
    std::ofstream(path("logs")) << "\n";
    const LaunchResult result = launch({log_dir_, "-r", "3", "echo", "started"});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(path("logs")));
}

TEST_F(DropInOptions, AMissingLogFolderIsMade) {
    EXPECT_EQ(launch({log_dir_ + "/more/of/it", "-r", "3", "bash", "-c", speak}).exit_code, 0);
    EXPECT_EQ(log_text("/attempt_0/0/stdout.log"), "out 0\n");
}

TEST_F(DropInOptions, OnlyTheFilteredRanksAreShownAndAllAreLogged) {
    const LaunchResult result = launch({"--nproc_per_node=3", log_dir_, "-t", "3",
                                        "--local_ranks_filter=0,2", "bash", "-c", speak});
    EXPECT_THAT(result.out, AllOf(HasSubstr("out 0"), Not(HasSubstr("out 1")), HasSubstr("out 2")));
    EXPECT_EQ(log_text("/attempt_0/1/stdout.log"), "out 1\n");
}

TEST_F(DropInOptions, ThePrefixIsFilledInForEachRank) {
    EXPECT_THAT(sorted_out({"--nproc_per_node=2", log_dir_, "-t", "3", "--role=trainer", "bash",
                            "-c", "echo out"},
                           {.environment = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="
                                            "[${role_name}-${local_rank}:${rank}]:"}}),
                ElementsAre("[trainer-0:0]:out", "[trainer-1:1]:out"));
    EXPECT_EQ(log_text("/attempt_0/0/stdout.log"), "out\n") << "files have the lines alone";
}

TEST_F(DropInOptions, TheExitCodeCanBeTorchruns) {
    EXPECT_EQ(launch({"--exit-code=torchrun", "bash", "-c", "exit 9"}).exit_code, 1);
}

TEST_F(DropInOptions, TheRootErrorIsCopiedToTheLaunchersOwnErrorFile) {
    const std::string own = path("error.json");
    std::ofstream(own) << "older\n";
    launch(plain({"--nproc_per_node=2"}, {"rank=1", "write_error_file", "7", "E: sad"}),
           {.environment = {"TORCHELASTIC_ERROR_FILE=" + own}});
    EXPECT_THAT(text_of(own), AllOf(HasSubstr("E: sad"), HasSubstr("errorCode"), HasSubstr("7"),
                                    Not(HasSubstr("older"))));
}

}  // namespace
}  // namespace ddp::launcher::testing
