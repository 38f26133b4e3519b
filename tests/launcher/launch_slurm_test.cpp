// Jobs under a real Slurm: its controller and three nodes, one on each host of a world, with a
// munged that all of them ask.
#include "launcher/daemons_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // daemons_fixture.hpp

class LaunchSlurm : public DaemonsTest {
protected:
    void SetUp() override {
        DaemonsTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        start_munged();
        if (!HasFatalFailure()) start_slurm();
    }

    // srun, sbatch, ... with these words, on the first host.
    HostProgram slurm(const std::string& command, Words words, const Words& environment = {}) {
        words.insert(words.begin(), daemons + "/usr/bin/" + command);
        return run_beside_slurm(std::move(words), environment);
    }
    HostProgram run_beside_slurm(Words words, Words environment = {}) {
        environment.insert(
            environment.end(),
            {"SLURM_CONF=" + folder() + "/slurm.conf", "LD_LIBRARY_PATH=" + libraries_,
             "PATH=" + daemons + "/usr/bin:" + path_, "TMPDIR=" + folder(), "OMP_NUM_THREADS=1"});
        return world().run(1, std::move(words), std::move(environment));
    }
    std::string ask(const std::string& command, Words words) {
        HostProgram program = slurm(command, std::move(words));
        const HostProgramResult result = program.wait(20s);
        EXPECT_EQ(result.exit_code, 0) << command << ": " << result.err;
        return result.out;
    }
    // A step with one ddp-launch on each node.
    HostProgram step(const Words& options, const Words& command) {
        Words words{"--nodes=" + std::to_string(hosts), "--ntasks-per-node=1", DDP_LAUNCH};
        words.insert(words.end(), options.begin(), options.end());
        words.insert(words.end(), command.begin(), command.end());
        return slurm("srun", std::move(words));
    }
    std::string text_of(const std::string& name) const {
        std::ifstream file(folder() + "/" + name, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    const std::string& libraries() const { return libraries_; }

private:
    // Of the first host; the others reach its socket in the same place.
    void start_munged() {
        std::filesystem::create_directory(folder() + "/munge");
        std::ofstream(folder() + "/munge.key") << std::string(1024, 'k');
        ::chmod((folder() + "/munge.key").c_str(), S_IRUSR | S_IWUSR);
        for (int host = 1; host <= hosts; ++host) {
            HostProgram mount =
                world().run(host, bash("mount -t tmpfs none /run && mkdir /run/munge && "
                                       "mount --bind " +
                                       folder() + "/munge /run/munge"));
            ASSERT_EQ(mount.wait(20s).exit_code, 0) << mount.err();
        }
        const std::string at = folder() + "/munge.";
        run_daemon(1, {daemons + "/usr/sbin/munged", "--foreground", "--force",
                       "--key-file=" + at + "key", "--pid-file=" + at + "pid",
                       "--log-file=" + at + "log", "--seed-file=" + at + "seed"});
        const std::string socket = folder() + "/munge/munge.socket.2";
        ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(socket); }));
    }
    void start_slurm() {
        std::filesystem::create_directory(folder() + "/state");
        std::ofstream(folder() + "/slurm.conf")
            << "ClusterName=test\nSlurmctldHost=h1\nSlurmUser=root\n"
            << "AuthType=auth/munge\nCredType=cred/munge\nMpiDefault=none\nProctrackType=proctrack/"
               "linuxproc\n"
            << "TaskPlugin=task/none\nSwitchType=switch/none\nSelectType=select/cons_tres\n"
            << "SelectTypeParameters=CR_Core\nReturnToService=2\nKillWait=5\n"
            << "PluginDir=" << plugins_ << "\nStateSaveLocation=" << folder() << "/state\n"
            << "SlurmctldPidFile=" << folder() << "/ctld.pid\n"
            << "SlurmctldLogFile=" << folder() << "/ctld.log\n"
            << "SlurmdPidFile=" << folder() << "/%n.pid\nSlurmdLogFile=" << folder() << "/%n.log\n"
            << "SlurmdSpoolDir=" << folder() << "/spool.%n\n"
            << "NodeName=h[1-" << hosts << "] CPUs=2\n"
            << "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
        const std::string conf = folder() + "/slurm.conf";
        const Words environment{"LD_LIBRARY_PATH=" + libraries_};
        const std::string sbin = daemons + "/usr/sbin/";
        run_daemon(1, {sbin + "slurmctld-wlm", "-D", "-f", conf}, environment);
        for (int host = 1; host <= hosts; ++host) {
            const std::string name = HostWorld::name(host);
            std::filesystem::create_directory(folder() + "/spool." + name);
            run_daemon(
                host,
                {sbin + "slurmd-wlm", "-D", "-N", name, "-f", conf, "-d", sbin + "slurmstepd-wlm"},
                environment);
        }
        ASSERT_TRUE(wait_until([&] {
            HostProgram sinfo = slurm("sinfo", {"--noheader", "--format=%T %D"});
            return sinfo.wait(20s).out == "idle " + std::to_string(hosts) + "\n";
        })) << text_of("ctld.log")
            << text_of("h1.log");
    }

    const std::string plugins_ = daemon_libraries + "/slurm-wlm";
    const std::string libraries_ = plugins_ + ":" + daemon_libraries;
    const std::string path_ = std::getenv("PATH");
};

TEST_F(LaunchSlurm, AStepOfThreeNodesIsOneJob) {
    HostProgram srun =
        step({"--auth=required", "--nproc-per-node=2"}, bash("echo $(hostname) $RANK/$WORLD_SIZE "
                                                             "$MASTER_ADDR:$MASTER_PORT"));
    const HostProgramResult result = srun.wait(60s);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::string> lines = lines_of(result.out);
    std::ranges::sort(lines);
    const std::string head = " h1:20001";  // 20000 + the job's number
    EXPECT_EQ(lines, (std::vector<std::string>{"h1 0/6" + head, "h1 1/6" + head, "h2 2/6" + head,
                                               "h2 3/6" + head, "h3 4/6" + head, "h3 5/6" + head}));
    EXPECT_THAT(result.err, HasSubstr("3 hosts of Slurm step 1.0 (SLURM_STEP_NUM_NODES)"));
}

// As a task of job 9 would run it on that node, but for srun.
class LaunchMunge : public LaunchSlurm {
protected:
    HostProgram launcher(int host, const Words& before = {}, Words environment = {}) {
        environment.insert(environment.end(), {"LD_LIBRARY_PATH=" + libraries()});
        return launch(world(), host,
                      {"--nnodes=2", "--node-rank=" + std::to_string(host - 1), "--master-addr=h1"},
                      bash("echo $RANK/$WORLD_SIZE"),
                      {.environment = std::move(environment), .before = before});
    }
    const Words of_job{"SLURM_JOB_ID=9"};
};

TEST_F(LaunchMunge, ProvesThatHostsAreOfOneUser) {
    HostProgram head = launcher(1, {}, of_job);
    HostProgram other =
        launcher(2, {"setpriv", "--reuid=65533", "--clear-groups", "env", "TMPDIR=/tmp"}, of_job);
    EXPECT_EQ(other.wait(60s).exit_code, 2) << other.err();
    EXPECT_THAT(other.err(), HasSubstr("no proof by MUNGE that the coordinator is of this user: "
                                       "munge: Unauthorized credential"));
    HostProgram of_another_job = launcher(2, {}, {"SLURM_JOB_ID=10"});
    EXPECT_EQ(of_another_job.wait(60s).exit_code, 2) << of_another_job.err();
    EXPECT_THAT(of_another_job.err(),
                HasSubstr("its credential is for another job than Slurm job 10. at port 29500"));
    HostProgram without = launcher(2);
    EXPECT_EQ(without.wait(60s).exit_code, 2) << without.err();
    const std::string why =
        "the agent at 10.77.0.2 has no job token, and this job has MUNGE instead of a job token";
    EXPECT_THAT(without.err(), HasSubstr(why));
    EXPECT_TRUE(head.wait_for_error(why)) << head.err();
    HostProgram same = launcher(2, {}, of_job);
    EXPECT_EQ(same.wait(60s).exit_code, 0) << same.err();
    EXPECT_EQ(head.wait(60s).exit_code, 0) << head.err();
    EXPECT_EQ(head.out() + same.out(), "0/2\n1/2\n");
    EXPECT_THAT(head.err(), Not(HasSubstr("no job token: anybody")));
}

TEST_F(LaunchMunge, AHostWithItTrustsNoCoordinatorWithout) {
    HostProgram head = launcher(1);
    HostProgram member = launcher(2, {}, of_job);
    EXPECT_EQ(member.wait(60s).exit_code, 2) << member.err();
    EXPECT_THAT(member.err(), HasSubstr("has MUNGE instead of a job token, and this job has none"));
}

TEST_F(LaunchSlurm, AFailureIsTheStepsExitCode) {
    HostProgram srun = step({}, bash("[ $RANK = 1 ] && exit 7; exec sleep 300"));
    const HostProgramResult result = srun.wait(60s);
    EXPECT_EQ(result.exit_code, 7) << result.err;
    EXPECT_THAT(result.err, HasSubstr("rank 1 (local rank 0"));
    EXPECT_TRUE(nothing_runs("sleep"));
}

TEST_F(LaunchSlurm, ScancelLeavesNothing) {
    HostProgram srun = step({"--shutdown-timeout=1"}, bash("trap '' TERM; echo up; sleep 300 & "
                                                           "while :; do wait; done"));
    ASSERT_TRUE(srun.wait_for_output("up", hosts)) << srun.err();
    ask("scancel", {"1"});
    EXPECT_NE(srun.wait(60s).exit_code, 0) << srun.err();
    EXPECT_TRUE(nothing_runs("sleep"));
    EXPECT_TRUE(nothing_runs("ddp-launch"));
}

TEST_F(LaunchSlurm, ALauncherThatIsKilledEndsTheStep) {
    HostProgram srun = step({}, bash("echo up; exec sleep 300"));
    ASSERT_TRUE(srun.wait_for_output("up", hosts)) << srun.err();
    for (const pid_t pid : world().pids_on(2)) {
        if (comm_of(pid) == "ddp-launch") ::kill(pid, SIGKILL);
    }
    EXPECT_NE(srun.wait(60s).exit_code, 0) << srun.err();
    EXPECT_TRUE(nothing_runs("sleep"));
    EXPECT_THAT(srun.err(), HasSubstr("h2"));
}

// By MUNGE, whose credential the successor hands on.
TEST_F(LaunchSlurm, AnotherNodeTakesOverFromTheFirst) {
    HostProgram srun =
        step({"--nnodes=2:3", "--node-timeout=2", "--auth=required"},
             bash("echo $RANK of $WORLD_SIZE in $DDP_ROUND; [ $DDP_ROUND = 2 ] || exec sleep 300"));
    ASSERT_TRUE(srun.wait_for_output("of 3 in 1", hosts)) << srun.err();
    std::vector<pid_t> launchers;
    for (const pid_t pid : world().pids_on(1)) {
        const std::string comm = comm_of(pid);
        if (comm == "ddp-launch" || comm == "ddp-agent") launchers.push_back(pid);
    }
    kill_at_once(launchers);
    EXPECT_EQ(srun.wait(60s).exit_code, 128 + SIGKILL) << "of the first node's task";
    EXPECT_EQ(count_of(srun.out(), "of 2 in 2"), 2) << srun.out() << srun.err();
    EXPECT_THAT(srun.err(), HasSubstr("may take over: h2:20001, h3:20001"));
    EXPECT_TRUE(nothing_runs("sleep"));
}

// From a shell of the allocation, with ddp-launch once.
TEST_F(LaunchSlurm, HostsOfAnAllocationAreStartedBySteps) {
    HostProgram salloc =
        slurm("salloc", {"--nodes=3", "--no-shell", "--job-name=a"});  // and gives no step
    ASSERT_EQ(salloc.wait(20s).exit_code, 0) << salloc.err();
    const Words environment{"SLURM_JOB_ID=1", "SLURM_JOBID=1", "SLURM_JOB_NODELIST=h[1-3]",
                            "SLURM_NNODES=3", "SLURM_NTASKS_PER_NODE=2"};
    const auto run = [&](const Words& options, const std::string& script) {
        Words words{DDP_LAUNCH, "--hosts=h[1-3]"};
        words.insert(words.end(), options.begin(), options.end());
        for (const std::string& word : bash(script)) words.push_back(word);
        return run_beside_slurm(std::move(words), environment);
    };
    HostProgram fine = run({"--nproc-per-node=2"},
                           "echo $(hostname) $RANK/$WORLD_SIZE "
                           "$MASTER_ADDR:$MASTER_PORT; cat");
    EXPECT_EQ(fine.wait(60s).exit_code, 0) << fine.err();
    std::vector<std::string> lines = lines_of(fine.out());
    std::ranges::sort(lines);
    const std::string head = " h1:20001";
    EXPECT_EQ(lines, (std::vector<std::string>{"h1 0/6" + head, "h1 1/6" + head, "h2 2/6" + head,
                                               "h2 3/6" + head, "h3 4/6" + head, "h3 5/6" + head}));
    HostProgram failing = run({}, "[ $RANK = 2 ] && exit 7; exec sleep 300");
    EXPECT_EQ(failing.wait(60s).exit_code, 7) << failing.err();
    HostProgram killed = run({}, "echo up; exec sleep 300");
    ASSERT_TRUE(killed.wait_for_output("up", hosts)) << killed.err();
    killed.signal(SIGKILL);
    EXPECT_TRUE(nothing_runs("sleep"));
}

TEST_F(LaunchSlurm, AJobThatIsRequeuedRunsAgainWhole) {
    const std::string script = folder() + "/job";
    std::ofstream(script)
        << "#!/bin/bash\n"
        << "echo \"$SLURM_RESTART_COUNT\" >" << folder() << "/restarts\n"
        << "srun --ntasks-per-node=1 " << DDP_LAUNCH
        << " bash -c 'echo rank $RANK of $WORLD_SIZE; [ -n \"$SLURM_RESTART_COUNT\" ]"
        << " || exec sleep 300'\necho \"$?\" >" << folder() << "/status\n";
    ask("sbatch",
        {"--nodes=3", "--requeue", "--open-mode=append", "--output=" + folder() + "/out", script});
    const auto ups = [&] { return count_of(text_of("out"), "of 3\n"); };
    ASSERT_TRUE(wait_until([&] { return ups() == hosts; })) << text_of("out");
    ask("scontrol", {"requeue", "1"});
    // Slurm lets it wait two minutes.
    ASSERT_TRUE(wait_until([&] { return ask("squeue", {"-h", "-o%t"}) == "PD\n"; }));
    ask("scontrol", {"update", "JobId=1", "StartTime=now"});
    EXPECT_TRUE(wait_until([&] { return text_of("status") == "0\n"; }))
        << text_of("out") << ask("squeue", {});
    EXPECT_EQ(text_of("restarts"), "1\n");
    EXPECT_EQ(ups(), 2 * hosts) << text_of("out");
    EXPECT_TRUE(nothing_runs("sleep"));
}

}  // namespace
}  // namespace ddp::launcher
