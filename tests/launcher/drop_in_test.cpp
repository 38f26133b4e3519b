// The behaviours that torchrun's own tests pin down, asked of ddp-launch. Files are those of
// PyTorch's test/distributed; what needs an option of torchrun is in drop_in_options_test.cpp, what
// needs PyTorch in tests/interop.
//
// launcher/test_run.py
//   launch_user_script_{bash,python}            EveryRankTouchesAFileNamedByItsRank; interop
//   ..._default_nproc                           OneWorkerIsTheDefault
//   launch_with_env_vars, min_max_nodes_parse,
//     nproc_launch_*, nproc_gpu_*, *_no_python,
//     virtual_local_rank, capture_logs_*        drop_in_options_test.cpp
//   launch_elastic_worker_raise_exception       AWorkersFailureIsTheJobs
//   launch_standalone                           AStandaloneJobNeedsNoPort
//   launch_shutdown                             NothingListensAfterTheJob
//   is_torchelastic_launched                    ARunIdTellsWorkersWhoStartedThem
//   init_method_{tcp,env}_with_torchelastic     interop
//   launch_elastic, launch_run_path             drop_in_options_test.cpp
//   ..._multiple_agents                         several hosts: later
//   *xpu*, logs_spec_*                          n/a: Python inside the launcher
//   launch_elastic_agent_raise_exception        LaunchKill: an agent that dies
// test_api.py, elastic/multiprocessing/test_api.py
//   ..._default_signals, signals registered     EachDefaultSignalIsPassedOnAndStopsTheJob
//   custom, USR, invalid signals                drop_in_options_test.cpp
//   ...shutdown_does_not_mask_child_failed      AFailureIsNotMaskedByTheStopThatFollows
//   non-main thread                             n/a: a program, not a library
// elastic/multiprocessing/api_test.py
//   from_value, from_str_bad_input, to_map, invalid_log_dir, binary_redirect_and_tee
//                                               drop_in_options_test.cpp
//   binary_incorrect_entrypoint                 AProgramThatIsNotThereStartsNothing
//   pcontext_wait, *_close, no_zombie_process_* NoProcessIsLeftAfterSigterm, ...AfterAFailure
//   binary_exit, function_exit, binary_signal   AnExitCodeAbove128IsKept, ASignalIsNamed
//   binary_raises, function_raise               TheFirstErrorFileIsInTheReport
//   args_env_len_mismatch                       n/a: one program for all ranks
// errors/{api,error_handler}_test.py
//   both formats, malformed                     BothFormatsOfErrorFilesAreRead, AMalformed...
//   SystemExit                                  interop
// redirects_test, tail_log_test                 NoneOf32TimesAThousandLinesIsLost
// agent/server/test/local_elastic_agent_test.py
//   run_happy_function                          AJobWhoseWorkersAllEndWellEndsWell
//   run_sad_function, run_bipolar_function      TheFirstErrorFile..., AWorkersFailureIsTheJobs
//   rank_restart_after_failure                  OneFailureIsRecoveredByARestart
//   check_env_*, correct_rank_assignment_*      TheEnvironmentIsCompleteAndRanksAreContiguous
//   check_nccl_async_error_handling_env*        NcclErrorHandlingIsTheParentsOrOne
//   check_master_addr_port_override             AGivenMasterIsTheWorkers
//   run_distributed_sum_*                       interop; ranks of unequal hosts: later
//   no_exit_barrier_on_failure                  AFailureIsNotFollowedByAWait
//   workers_drift_success, ..._fail             WorkersMayDriftApart, AFailureAfterOthersHaveEnded
//   shutdown_called                             NoProcessIsLeftAfterSigterm
//   barrier_failed, exit_barrier_timeout_test   n/a: no exit barrier
//   double_agent_*, watchdog, health check      several hosts, hang detection: later
//   torch_rpc                                   n/a: roles are not mixed in one launch
// agent/server/test/api_test.py
//   restart_workers                             ARestartHasAFreshStore
//   run_max_retries_exceeded                    RestartsThatAreUsedUpEndTheJob
//   run_unknown_state                           n/a: a pidfd always answers
//   assign_worker_ranks, run_membership_change  several hosts: later
// shutdown_timeout_test.py                      TheShutdownTimeoutIs30OrTheVariablesOrTheOptions
// rendezvous/*                                  several hosts: later
#include "launcher/launch_fixture.hpp"
#include "launcher/options/options.hpp"

#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

namespace ddp::launcher::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class DropIn : public LaunchTest {
protected:
    // ddp-launch with some variables surely unset.
    LaunchResult launch_without(const std::vector<std::string>& variables,
                                const Launch::Words& arguments) {
        Launch::Words words{"env"};
        for (const std::string& variable : variables) words.insert(words.end(), {"-u", variable});
        words.emplace_back(DDP_LAUNCH);
        words.insert(words.end(), arguments.begin(), arguments.end());
        return launch(words);
    }
    std::vector<pid_t> left_over() const { return processes_with(cookie()); }
    std::string cookie() const { return "DDP_TEST_COOKIE=" + folder_.path(); }

    const TemporaryFolder files_;  // for what the workers write
};

std::vector<std::string> sorted_lines(const std::string& text) {
    std::vector<std::string> lines = lines_of(text);
    std::sort(lines.begin(), lines.end());
    return lines;
}

const std::string wait_for_file = "until [ -e \"$0/$file\" ]; do sleep 0.01; done; ";

TEST_F(DropIn, EveryRankTouchesAFileNamedByItsRank) {
    const LaunchResult result = launch(
        {"--nproc_per_node=4", "--max_restarts=3", "bash", "-c", "touch $0/$RANK", files_.path()});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(files_.names(), UnorderedElementsAre("0", "1", "2", "3"));
}

TEST_F(DropIn, OneWorkerIsTheDefault) {
    EXPECT_EQ(launch({"bash", "-c", "echo $RANK of $WORLD_SIZE"}).out, "0 of 1\n");
}

TEST_F(DropIn, AStandaloneJobNeedsNoPort) {
    const std::string script = "echo $MASTER_ADDR; test $MASTER_PORT -gt 0";
    const LaunchResult result =
        launch({"--standalone", "--nproc_per_node=2", "bash", "-c", script});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "127.0.0.1\n127.0.0.1\n");
}

TEST_F(DropIn, ARunIdTellsWorkersWhoStartedThem) {
    const std::string script = "test -n \"$TORCHELASTIC_RUN_ID\" && echo $TORCHELASTIC_RUN_ID";
    const LaunchResult result = launch({"--nproc_per_node=2", "bash", "-c", script});
    EXPECT_EQ(result.exit_code, 0);
    const auto ids = lines_of(result.out);
    ASSERT_EQ(ids.size(), 2U);
    EXPECT_EQ(ids[0], ids[1]) << "one job, one id";
}

TEST_F(DropIn, TheEnvironmentIsCompleteAndRanksAreContiguous) {
    const std::string script =
        "echo \"$RANK $LOCAL_RANK $ROLE_RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE $ROLE_WORLD_SIZE "
        "group $GROUP_RANK of $GROUP_WORLD_SIZE role $ROLE_NAME attempt "
        "$TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS store "
        "$TORCHELASTIC_USE_AGENT_STORE threads $OMP_NUM_THREADS master $MASTER_ADDR\"; "
        "test -n \"$MASTER_PORT$TORCHELASTIC_ERROR_FILE\"";
    const LaunchResult result = launch_without(
        {"OMP_NUM_THREADS"}, {"--nproc_per_node=3", "--max_restarts=2", "bash", "-c", script});
    EXPECT_EQ(result.exit_code, 0);
    const std::string rest =
        " of 3 3 3 group 0 of 1 role default attempt 0 of 2 store True threads 1 master 127.0.0.1";
    EXPECT_THAT(sorted_lines(result.out),
                ElementsAre("0 0 0" + rest, "1 1 1" + rest, "2 2 2" + rest));
}

TEST_F(DropIn, NcclErrorHandlingIsTheParentsOrOne) {
    const std::string variable = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
    const Launch::Words show{"bash", "-c", "echo $" + variable};
    EXPECT_EQ(launch_without({variable}, show).out, "1\n");
    EXPECT_EQ(launch(show, {.environment = {variable + "=0"}}).out, "0\n");
}

TEST_F(DropIn, AGivenMasterIsTheWorkers) {
    const LaunchResult result =
        launch({"--agent-store=off", "--master_addr=192.0.2.7", "--master_port=4321", "bash", "-c",
                "echo $MASTER_ADDR $MASTER_PORT"});
    EXPECT_EQ(result.out, "192.0.2.7 4321\n");
}

TEST_F(DropIn, AJobWhoseWorkersAllEndWellEndsWell) {
    const LaunchResult result = launch(plain({"--nproc_per_node=3"}, {"exit_with", "0"}));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
}

TEST_F(DropIn, AWorkersFailureIsTheJobs) {
    const LaunchResult result =
        launch({"--nproc_per_node=4", "bash", "-c", "exit $((RANK == 2 ? 9 : 0))"});
    EXPECT_EQ(result.exit_code, 9);
    EXPECT_THAT(result.err, HasSubstr("rank 2 (local rank 2, pid "));
}

TEST_F(DropIn, TheFirstErrorFileIsInTheReport) {
    const LaunchResult result =
        launch(plain({"--nproc_per_node=2"}, {"rank=0", "write_error_file", "1", "E: sad"}));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("rank 0 (local rank 0, pid "));
    EXPECT_THAT(result.err, HasSubstr("E: sad"));
}

TEST_F(DropIn, BothFormatsOfErrorFilesAreRead) {
    for (const char* content : {R"({"message": "no data", "timestamp": 10})",
                                R"({"message": {"message": "no data", "extraInfo":
                                   {"py_callstack": "here", "timestamp": "10"}}})"}) {
        const LaunchResult result =
            launch({"bash", "-c", "echo \"$0\" >$TORCHELASTIC_ERROR_FILE; exit 4", content});
        EXPECT_EQ(result.exit_code, 4);
        EXPECT_THAT(result.err, HasSubstr("no data"));
        EXPECT_THAT(result.err, Not(HasSubstr("message"))) << "it is parsed, not copied";
    }
}

// torchrun's agent raises; that would hide who failed.
TEST_F(DropIn, AMalformedErrorFileDoesNotHideTheFailure) {
    const LaunchResult result =
        launch({"bash", "-c", "echo '{\"mess' >$TORCHELASTIC_ERROR_FILE; exit 4"});
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_THAT(result.err, HasSubstr("failed: exit code 4"));
}

TEST_F(DropIn, AnExitCodeAbove128IsKept) {
    const LaunchResult result = launch(plain({}, {"exit_with", "138"}));
    EXPECT_EQ(result.exit_code, 138);
    EXPECT_THAT(result.err, HasSubstr("exit code 138"));
}

TEST_F(DropIn, ASignalIsNamed) {
    const LaunchResult result =
        launch(plain({"--nproc_per_node=2"}, {"rank=1", "raise_signal", "11"}));
    EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
    EXPECT_THAT(result.err, HasSubstr("SIGSEGV (signal 11)"));
}

TEST_F(DropIn, AProgramThatIsNotThereStartsNothing) {
    EXPECT_EQ(launch({"--nproc_per_node=2", "./does_not_exist"}).exit_code, 127);
}

TEST_F(DropIn, OneFailureIsRecoveredByARestart) {
    const std::string script =
        "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then echo $RANK of $WORLD_SIZE again; "
        "elif [ $RANK = 1 ]; then exit 3; else exec sleep 999; fi";
    const LaunchResult result =
        launch({"--nproc_per_node=2", "--max_restarts=1", "bash", "-c", script});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(sorted_lines(result.out), ElementsAre("0 of 2 again", "1 of 2 again"));
}

TEST_F(DropIn, RestartsThatAreUsedUpEndTheJob) {
    const LaunchResult result = launch(
        {"--max_restarts=2", "bash", "-c", "echo attempt $TORCHELASTIC_RESTART_COUNT; exit 7"});
    EXPECT_EQ(result.exit_code, 7);
    EXPECT_EQ(result.out, "attempt 0\nattempt 1\nattempt 2\n");
}

TEST_F(DropIn, ARestartHasAFreshStore) {
    Launch job(folder_, {"--max_restarts=1", "bash", "-c",
                         "echo $MASTER_PORT; file=$TORCHELASTIC_RESTART_COUNT; " + wait_for_file +
                             "exit $((1 - TORCHELASTIC_RESTART_COUNT))",
                         files_.path()});
    const auto connect = [&](std::size_t attempt) {
        const auto port = static_cast<std::uint16_t>(std::stoi(lines_of(job.out()).at(attempt)));
        return connect_tcp_store({"127.0.0.1", port}, patience);
    };
    ASSERT_TRUE(job.wait_for_output("\n"));
    const auto old = connect(0);
    old->set("k", "of the first attempt");
    ASSERT_TRUE(old->check({"k"}));
    std::ofstream(files_.path() + "/0");
    ASSERT_TRUE(job.wait_for_output("\n", 2));
    EXPECT_FALSE(connect(1)->check({"k"}));
    EXPECT_THROW(old->check({"k"}), SystemError) << "connections end with their attempt";
    std::ofstream(files_.path() + "/1");
    EXPECT_EQ(job.wait().exit_code, 0);
}

TEST_F(DropIn, NothingListensAfterTheJob) {
    const LaunchResult result = launch({"bash", "-c", "echo $MASTER_PORT"});
    const auto port = static_cast<std::uint16_t>(std::stoi(result.out));
    EXPECT_THROW(connect_tcp_store({"127.0.0.1", port}, std::chrono::milliseconds{50}), Error);
}

TEST_F(DropIn, WorkersMayDriftApart) {
    const LaunchResult result =
        launch({"--nproc_per_node=2", "bash", "-c",
                "if [ $RANK = 1 ]; then touch $0/over; exit; fi; file=over; " + wait_for_file +
                    "echo late",
                files_.path()});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "late\n");
}

TEST_F(DropIn, AFailureAfterOthersHaveEnded) {
    const LaunchResult result = launch(
        {"--nproc_per_node=2", "bash", "-c",
         "if [ $RANK = 1 ]; then touch $0/over; exit; fi; file=over; " + wait_for_file + "exit 6",
         files_.path()});
    EXPECT_EQ(result.exit_code, 6);
}

// With a grace that outlasts the test, only a stop without waiting ends it.
TEST_F(DropIn, AFailureIsNotFollowedByAWait) {
    const LaunchResult result = launch(
        plain({"--nproc_per_node=3", "--shutdown_timeout=1000"}, {"rank=1", "exit_with", "5"}));
    EXPECT_EQ(result.exit_code, 5);
}

TEST_F(DropIn, AFailureIsNotMaskedByTheStopThatFollows) {
    const LaunchResult result =
        launch({"--nproc_per_node=2", "bash", "-c",
                "if [ $RANK = 1 ]; then file=up; " + wait_for_file +
                    "exit 5; fi; trap 'exit 77' TERM; touch $0/up; while true; do sleep 0.01; done",
                files_.path()});
    EXPECT_EQ(result.exit_code, 5);
    EXPECT_THAT(result.err, HasSubstr("rank 0 (exit code 77 after SIGTERM"));
}

const std::string with_a_child = "sleep 999 & echo ready; wait";

TEST_F(DropIn, NoProcessIsLeftAfterSigterm) {
    Launch job(folder_, {"--nproc_per_node=2", "bash", "-c", with_a_child},
               {.environment = {cookie()}});
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);
    EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(DropIn, NoProcessIsLeftAfterAFailure) {
    const LaunchResult result =
        launch({"--nproc_per_node=2", "bash", "-c", "sleep 999 & exit $RANK"},
               {.environment = {cookie()}});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(DropIn, EachDefaultSignalIsPassedOnAndStopsTheJob) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        Launch job(folder_, plain({"--nproc_per_node=2"}, {"print_signals"}));
        ASSERT_TRUE(job.wait_for_output("ready", 2));
        job.signal(signal);
        EXPECT_TRUE(job.wait_for_output("got " + std::to_string(signal) + "\n", 2));
        if (signal == SIGQUIT) job.signal(SIGTERM);  // this worker does not end by the first
        EXPECT_EQ(job.wait().exit_code, 128 + signal);
    }
}

TEST_F(DropIn, TheShutdownTimeoutIs30OrTheVariablesOrTheOptions) {
    const auto timeout = [](std::vector<std::string> words, const char* variable) {
        words.emplace_back("program");
        std::vector<char*> arguments;
        for (std::string& word : words) arguments.push_back(word.data());
        const auto lookup = [&](std::string_view name) -> std::optional<std::string> {
            if (variable == nullptr || name != "TORCH_ELASTIC_SHUTDOWN_TIMEOUT") return {};
            return variable;
        };
        return parse_options(arguments, lookup).stop.shutdown_timeout.count();
    };
    EXPECT_EQ(timeout({}, nullptr), 30);
    EXPECT_EQ(timeout({}, "7"), 7);
    EXPECT_EQ(timeout({"--shutdown_timeout=8"}, "7"), 8);
    EXPECT_EQ(timeout({"--shutdown-timeout", "0"}, "7"), 0);
    EXPECT_THROW(timeout({"--shutdown-timeout=-1"}, nullptr), UsageError);
}

TEST_F(DropIn, NoneOf32TimesAThousandLinesIsLost) {
    const LaunchResult result =
        launch(plain({"--nproc_per_node=32"}, {"many_lines", "1000", "out"}));
    EXPECT_EQ(result.exit_code, 0);
    std::vector<int> next(32, 0);
    for (const std::string& line : lines_of(result.out)) {
        int rank = -1;
        int number = -1;
        ASSERT_EQ(std::sscanf(line.c_str(), "rank %d line %d", &rank, &number), 2) << line;
        ASSERT_EQ(number, next.at(static_cast<std::size_t>(rank))++) << line;
    }
    EXPECT_EQ(next, std::vector<int>(32, 1000));
}

}  // namespace
}  // namespace ddp::launcher::testing
