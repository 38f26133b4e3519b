// The command line: what is taken, and where it arrives.
#include "launcher/options/options.hpp"

#include "launcher/bad_command_lines.hpp"
#include "launcher/options/option_table.hpp"
#include "launcher/options/split_arguments.hpp"
#include "launcher/parse_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;
using testing::Environment;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::parse;
using testing::pointers_to;
using testing::Words;

TEST(Options, DefaultsAreThoseOfASingleWorker) {
    const Options options = parse({"./train"});
    EXPECT_EQ(options.action, Action::run);
    EXPECT_EQ(options.nproc_per_node.number, 1);
    EXPECT_EQ(options.rendezvous.master_addr, "127.0.0.1");
    EXPECT_EQ(options.rendezvous.master_port, 0);
    EXPECT_EQ(options.stop.shutdown_timeout, std::chrono::seconds{30});
    EXPECT_EQ(options.rendezvous.agent_store, AgentStore::on);
    EXPECT_EQ(options.rendezvous.store_peers, store::StorePeers::same_user);
    EXPECT_EQ(options.rendezvous.store_bytes, 256U << 20);
    EXPECT_FALSE(options.hosts.flags.standalone);
    EXPECT_THAT(options.program.command, ElementsAre("./train"));
}

TEST(Options, UnderscoresAndDashesAndEqualsSignsAreTheSame) {
    const std::vector<Words> spellings{{"--nproc_per_node=4", "x"},
                                       {"--nproc-per-node=4", "x"},
                                       {"--nproc_per_node", "4", "x"},
                                       {"--nproc-per-node", "4", "--", "x"},
                                       {"--nproc-per_node", "4", "x"}};
    for (const Words& words : spellings) {
        EXPECT_EQ(parse(words).nproc_per_node.number, 4);
        EXPECT_THAT(parse(words).program.command, ElementsAre("x"));
    }
}

TEST(Options, ValuesArriveWhereTheyBelong) {
    const Options options =
        parse({"--master_addr", "localhost", "--master_port=29500", "--shutdown-timeout", "0",
               "--agent-store=off", "--store-peers=any", "--store-memory=1G", "x"});
    EXPECT_EQ(options.rendezvous.master_addr, "localhost");
    EXPECT_EQ(options.rendezvous.master_port, 29500);
    EXPECT_EQ(options.stop.shutdown_timeout, std::chrono::seconds{0});
    EXPECT_EQ(options.rendezvous.agent_store, AgentStore::off);
    EXPECT_EQ(options.rendezvous.store_peers, store::StorePeers::any);
    EXPECT_EQ(options.rendezvous.store_bytes, 1U << 30);
}

TEST(Options, TheLastOfRepeatedOptionsCounts) {
    EXPECT_EQ(parse({"--nproc-per-node=2", "--nproc_per_node", "3", "x"}).nproc_per_node.number, 3);
}

TEST(Options, TheWorkersWordsPassUntouched) {
    const Options options = parse({"--nproc-per-node=2", "./train", "--lr", "0.1", "--", "--help",
                                   "--nproc_per_node=9", "", "-x"});
    EXPECT_EQ(options.action, Action::run);
    EXPECT_EQ(options.nproc_per_node.number, 2);
    EXPECT_THAT(options.program.command, ElementsAre("./train", "--lr", "0.1", "--", "--help",
                                                     "--nproc_per_node=9", "", "-x"));
}

TEST(Options, ADoubleDashEndsTheLaunchersPart) {
    EXPECT_THAT(parse({"--", "--odd-name", "--"}).program.command, ElementsAre("--odd-name", "--"));
}

TEST(Options, AnOptionsValueIsNotTheProgram) {
    Words words{"--nproc-per-node", "2", "--master-port", "0", "prog", "arg"};
    const SplitArguments split = split_arguments(pointers_to(words));
    EXPECT_THAT(split.options, ElementsAre("--nproc-per-node=2", "--master-port=0"));
    EXPECT_THAT(split.command, ElementsAre("prog", "arg"));
}

TEST(Options, StandaloneIgnoresAddressAndPort) {
    const Options options =
        parse({"--standalone", "--master-addr=node7", "--master-port=29500", "x"});
    EXPECT_TRUE(options.hosts.flags.standalone);
    EXPECT_EQ(options.rendezvous.master_port, 0);
    EXPECT_EQ(options.rendezvous.master_addr, "127.0.0.1");
}

TEST(Options, HelpAndVersionNeedNoProgram) {
    EXPECT_EQ(parse({"--help"}).action, Action::help);
    EXPECT_EQ(parse({"-h"}).action, Action::help);
    EXPECT_EQ(parse({"--version"}).action, Action::version);
    EXPECT_THAT(parse({"--help"}).program.command, IsEmpty());
}

TEST(Options, HelpNamesEveryOption) {
    const std::string help = help_text();
    for (const OptionSpec& spec : option_table()) {
        EXPECT_THAT(help, HasSubstr(std::string("--") + spec.name));
    }
    EXPECT_EQ(help.find("boost"), std::string::npos);
}

TEST(Options, HelpIsAnsweredWhateverElseIsWrong) {
    const Environment broken{{"PET_NPROC_PER_NODE", "many"}};
    EXPECT_EQ(parse({"--help", "--nproc-per-node=many"}, broken).action, Action::help);
    EXPECT_EQ(parse({"--version", "-n", "0"}, broken).action, Action::version);
}

TEST(Options, EveryBadCommandLineIsOneLineThatNamesOptionAndValue) {
    EXPECT_GE(testing::bad_command_lines().size(), 60U);
    for (const testing::BadCommandLine& row : testing::bad_command_lines()) {
        const std::string error = error_of(row.words);
        for (const std::string& part : row.message) EXPECT_THAT(error, HasSubstr(part));
        EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    }
}

TEST(Options, ABeginningIsEnoughWhereOnlyOneOptionHasIt) {
    EXPECT_EQ(parse({"--nproc", "2", "x"}).nproc_per_node.number, 2);
    EXPECT_EQ(parse({"--nproc_per=2", "x"}).nproc_per_node.number, 2);
    EXPECT_EQ(parse({"--redirect=3", "x"}).logs.redirects.all, Streams::both);
    EXPECT_EQ(parse({"--max=3", "x"}).restart.max_restarts, 3);
    EXPECT_TRUE(parse({"--standa", "x"}).hosts.flags.standalone);
    EXPECT_EQ(parse({"--role=a", "x"}).role, "a");
    // A whole name wins over a longer one that begins so.
    EXPECT_EQ(parse({"--np=2", "x"}).nproc_per_node.number, 2);
    EXPECT_THAT(
        error_of({"--no=1", "x"}),
        HasSubstr("ambiguous: it may be --no-python, --no-stacks, --no-history, --node-rank"));
}

TEST(Options, ShortOptionsTakeTheirValueAsInArgparse) {
    for (const Words& words : std::vector<Words>{{"-r3", "x"}, {"-r", "3", "x"}, {"-r=3", "x"}}) {
        EXPECT_EQ(parse(words).logs.redirects.all, Streams::both);
        EXPECT_THAT(parse(words).program.command, ElementsAre("x"));
    }
    for (const Words& words : std::vector<Words>{{"-n", "4", "x"},
                                                 {"-n4", "x"},
                                                 {"-np", "4", "x"},
                                                 {"-np=4", "x"},
                                                 {"--np", "4", "x"}}) {
        EXPECT_EQ(parse(words).nproc_per_node.number, 4);
        EXPECT_THAT(parse(words).program.command, ElementsAre("x"));
    }
    EXPECT_EQ(parse({"-t", "1", "x"}).logs.tee.all, Streams::out);
    EXPECT_EQ(parse({"-m", "pkg.train", "--lr", "1"}).program.kind, ProgramKind::module);
    EXPECT_THAT(parse({"-m", "pkg.train", "-m"}).program.command, ElementsAre("pkg.train", "-m"));
}

TEST(Options, CountsMayBeWords) {
    EXPECT_EQ(parse({"x"}).nproc_per_node.what, CountOf::not_given);
    EXPECT_EQ(parse({"-n1", "x"}).nproc_per_node.what, CountOf::number);
    EXPECT_EQ(parse({"-n", "cpu", "x"}).nproc_per_node.what, CountOf::cpus);
    EXPECT_EQ(parse({"-n", "gpu", "x"}).nproc_per_node.what, CountOf::gpus);
    EXPECT_EQ(parse({"-n", "auto", "x"}).nproc_per_node.what, CountOf::gpus_else_cpus);
}

TEST(Options, WhatTorchrunAcceptsForOneHostIsAccepted) {
    const Options options =
        parse({"--nnodes=1:1", "--node_rank=0", "--rdzv_backend=c10d",
               "--rdzv_endpoint=localhost:0", "--rdzv_id=job7", "--rdzv_conf=timeout=60,is_host=1",
               "--monitor_interval=0.5", "--local_addr=node7", "--no_python", "--use_env", "x"});
    EXPECT_EQ(options.run_id, "job7");
    EXPECT_EQ(options.rendezvous.master_addr, "127.0.0.1");
    EXPECT_EQ(options.rendezvous.master_port, 0);
    EXPECT_EQ(options.program.kind, ProgramKind::executable);
    EXPECT_FALSE(options.program.pass_local_rank);
    EXPECT_EQ(parse({"--rdzv_endpoint=", "--rdzv_conf", "", "x"}).rendezvous.master_addr,
              "127.0.0.1");
}

TEST(Options, TheRestArrivesWhereItBelongs) {
    const Options options = parse({"-n",
                                   "16",
                                   "--max-restarts=3",
                                   "--restart-delay=0.25",
                                   "--same-failure-window=60",
                                   "--signals-to-handle=SIGTERM,USR1,SIGTERM",
                                   "--exit-code=torchrun",
                                   "--contain=pidns",
                                   "--log-dir=logs",
                                   "-r",
                                   "0:3,12:1",
                                   "-t3",
                                   "--local-ranks-filter=0,2-4",
                                   "--ranks-filter=7",
                                   "--log-line-prefix-template=[${rank}] ",
                                   "--status=off",
                                   "--stdin=15",
                                   "--tty",
                                   "--break-on-failure",
                                   "--role=trainer",
                                   "--virtual-local-rank",
                                   "--oversubscribe-gpu",
                                   "--pass-local-rank",
                                   "x"});
    EXPECT_EQ(options.restart.max_restarts, 3);
    EXPECT_EQ(options.restart.delay, std::chrono::milliseconds{250});
    EXPECT_EQ(options.restart.same_failure_window, std::chrono::seconds{60});
    EXPECT_THAT(options.stop.signals_to_handle, ElementsAre(SIGTERM, SIGUSR1));
    EXPECT_EQ(options.stop.exit_code, ExitCode::torchrun);
    EXPECT_EQ(options.stop.contain, Containment::pidns);
    EXPECT_EQ(options.logs.dir, "logs");
    EXPECT_EQ(options.logs.redirects.of(0), Streams::both);
    EXPECT_EQ(options.logs.redirects.of(1), Streams::none);
    EXPECT_EQ(options.logs.redirects.of(12), Streams::out);
    EXPECT_EQ(options.logs.tee.of(5), Streams::both);
    EXPECT_THAT(options.display.local_ranks_filter.value(), ElementsAre(0, 2, 3, 4));
    EXPECT_THAT(options.display.ranks_filter.value(), ElementsAre(7));
    EXPECT_EQ(options.display.line_prefix_template, "[${rank}] ");
    EXPECT_EQ(options.display.status, StatusLine::off);
    EXPECT_EQ(options.input.stdin_rank, 15);
    EXPECT_TRUE(options.input.tty);
    EXPECT_TRUE(options.stop.break_on_failure);
    EXPECT_EQ(options.role, "trainer");
    EXPECT_TRUE(options.program.virtual_local_rank);
    EXPECT_TRUE(options.program.oversubscribe_gpu);
    EXPECT_TRUE(options.program.pass_local_rank);
}

TEST(Options, DryRunNeedsAProgramAndPrintConfigDoesNot) {
    EXPECT_EQ(parse({"--dry-run", "x"}).action, Action::dry_run);
    EXPECT_THAT(error_of({"--dry-run"}), HasSubstr("no program to run"));
    EXPECT_EQ(parse({"--print-config"}).action, Action::print_config);
    EXPECT_THAT(error_of({"--print-config", "-n0"}), HasSubstr("--nproc-per-node"));
}

TEST(Options, AForeignAddressIsFineWhenRankZeroServes) {
    EXPECT_EQ(parse({"--agent-store=off", "--master-addr=10.0.0.1", "x"}).rendezvous.master_addr,
              "10.0.0.1");
}

const testing::Environment srun_step{{"SLURM_STEP_ID", "0"},
                                     {"SLURM_STEP_NUM_TASKS", "2"},
                                     {"SLURM_STEP_NUM_NODES", "1"},
                                     {"SLURM_NTASKS", "2"},
                                     {"SLURM_PROCID", "1"}};

// The variables are those of the fixtures of tests/contract.
TEST(Options, AStepOfSeveralTasksIsRefusedWithWhatToWrite) {
    const std::vector<std::pair<testing::Environment, std::string>> rows{
        {srun_step, "SLURM_STEP_NUM_TASKS=2"},
        {{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}}, "Open MPI's mpirun"},
        {{{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}, "PMI_SIZE=2"},
        {{{"MV2_COMM_WORLD_SIZE", "8"}}, "MV2_COMM_WORLD_SIZE=8"},
        {{{"PMIX_RANK", "1"}}, "PMIX_RANK=1"},
    };
    for (const auto& [environment, part] : rows) {
        for (const Words& words : {Words{"-n2", "x"}, Words{"--dry-run", "x"},
                                   Words{"--rdzv-endpoint=localhost:29400", "x"}}) {
            const std::string error = testing::error_of(words, environment);
            EXPECT_THAT(error, ::testing::HasSubstr(part));
            EXPECT_THAT(error, ::testing::HasSubstr("--standalone"));
            EXPECT_EQ(error.find('\n'), std::string::npos);
        }
    }
}

TEST(Options, AStepOfSeveralTasksIsTakenWhenToldWhatItIs) {
    for (const Words& words :
         {Words{"--nnodes=1", "x"}, Words{"--nnodes", "1:1", "x"}, Words{"--standalone", "x"},
          Words{"--help"}, Words{"--print-config"}}) {
        EXPECT_EQ(testing::error_of(words, srun_step), "no error") << words.front();
    }
    for (const auto& [name, value] : {std::pair{"PET_NNODES", "1"}, {"PET_STANDALONE", "1"}}) {
        testing::Environment environment = srun_step;
        environment[name] = value;
        EXPECT_EQ(testing::error_of({"x"}, environment), "no error") << name;
    }
}

TEST(Options, ABatchShellAndAStepOfOneAreNoStepsOfSeveral) {
    const std::vector<testing::Environment> rows{
        {{"SLURM_JOB_ID", "2"},
         {"SLURM_NTASKS", "2"},
         {"SLURM_NNODES", "2"},
         {"SLURM_PROCID", "0"},
         {"SLURM_NPROCS", "2"},
         {"SLURM_TASKS_PER_NODE", "1(x2)"}},
        {{"SLURM_STEP_ID", "4294967290"},
         {"SLURM_STEP_NUM_TASKS", "1"},
         {"SLURM_STEP_NUM_NODES", "1"},
         {"SLURM_NTASKS", "8"}},
        {{"SLURM_STEP_NUM_TASKS", "2"}},
        {{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}},
        {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}},
        {{"PMI_SIZE", "many"}},
    };
    for (const testing::Environment& environment : rows) {
        EXPECT_EQ(testing::error_of({"-n2", "x"}, environment), "no error");
    }
}

TEST(Options, StdinGoesToARankToAllOrToNone) {
    EXPECT_EQ(parse({"x"}).input.stdin_for, StdinFor::automatic);
    EXPECT_EQ(parse({"--stdin=all", "x"}).input.stdin_for, StdinFor::all);
    EXPECT_EQ(parse({"--stdin=none", "x"}).input.stdin_for, StdinFor::none);
    const Options one = parse({"-n2", "--stdin=all", "--stdin=1", "x"});
    EXPECT_EQ(one.input.stdin_for, StdinFor::rank);
    EXPECT_EQ(one.input.stdin_rank, 1);
    EXPECT_FALSE(parse({"--stdin=0", "--stdin=none", "x"}).input.stdin_rank);
}

}  // namespace
}  // namespace ddp::launcher
