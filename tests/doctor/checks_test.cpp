// Each look of ddp-doctor, at folders in place of /proc and /sys, and behind a seccomp filter.
#include "doctor/checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/net/socket.hpp"
#include "doctor/child.hpp"

namespace ddp::doctor {

void PrintTo(const Finding& one, std::ostream* out) { *out << as_text({&one, 1}); }

namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

class MadeUpHost {
public:
    MadeUpHost() {
        std::string name = std::filesystem::temp_directory_path() / "ddp-doctor-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
        root_ = name;
    }
    ~MadeUpHost() { std::filesystem::remove_all(root_); }
    MadeUpHost(const MadeUpHost&) = delete;
    MadeUpHost& operator=(const MadeUpHost&) = delete;

    void write(const std::string& path, const std::string& text) const {
        std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
        std::ofstream(root_ + path) << text;
    }
    void write_program(const std::string& path, const std::string& text) const {
        write(path, "#!/bin/sh\n" + text + "\n");
        ::chmod((root_ + path).c_str(), 0700);
    }
    const std::string& root() const { return root_; }

private:
    std::string root_;
};

auto says(Level level, const std::string& part) {
    return AllOf(Field("level", &Finding::level, level),
                 Field("says", &Finding::says, HasSubstr(part)));
}

TEST(DoctorProcessors, AreThoseOfTheQuota) {
    const MadeUpHost host;
    host.write("/proc/self/cgroup", "0::/job\n");
    host.write("/sys/fs/cgroup/job/cpu.max", "100000 100000\n");
    host.write("/sys/fs/cgroup/job/cpu.stat", "usage_usec 1\nnr_throttled 0\n");
    const Findings found = check_processors(host.root());
    EXPECT_THAT(found, ElementsAre(says(Level::warn, "the cgroup's quota is 1.0")));
    EXPECT_THAT(found[0].says, testing::StartsWith("1 of "));
    EXPECT_THAT(found[0].remedy, HasSubstr("limits.cpu"));
}

TEST(DoctorProcessors, ThatAQuotaHasStoppedAreNamed) {
    const MadeUpHost host;
    host.write("/proc/self/cgroup", "0::/jobs/one\n");
    host.write("/sys/fs/cgroup/jobs/cpu.stat", "usage_usec 1\nnr_throttled 17\n");
    EXPECT_THAT(check_processors(host.root()), Contains(says(Level::warn, "17 times")));
}

TEST(DoctorMemory, IsWhatTheTightestCgroupLeaves) {
    const MadeUpHost host;
    host.write("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    EXPECT_THAT(check_memory(host.root()), ElementsAre(says(Level::ok, "8192 MiB available")));
    host.write("/proc/self/cgroup", "0::/jobs/one\n");
    host.write("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
    host.write("/sys/fs/cgroup/jobs/one/memory.current", "1048576\n");
    host.write("/sys/fs/cgroup/jobs/memory.max", "1073741824\n");
    host.write("/sys/fs/cgroup/jobs/memory.current", "943718400\n");
    EXPECT_THAT(check_memory(host.root()),
                ElementsAre(says(Level::warn, "124 MiB left of the 1024 MiB")));
}

TEST(DoctorMemory, OfFilesThatAreKeptIsLeft) {
    const MadeUpHost host;
    host.write("/proc/meminfo", "MemAvailable: 8388608 kB\n");
    host.write("/proc/self/cgroup", "0::/job\n");
    host.write("/sys/fs/cgroup/job/memory.max", "2147483648\n");
    host.write("/sys/fs/cgroup/job/memory.current", "2147483648\n");
    host.write("/sys/fs/cgroup/job/memory.stat",
               "anon 1073741824\ninactive_file 805306368\nactive_file 268435456\n");
    EXPECT_THAT(check_memory(host.root()),
                ElementsAre(says(Level::ok, "1024 MiB left of the 2048 MiB")));
}

TEST(DoctorMemory, IsLimitedByCgroupsOfVersion1Too) {
    const MadeUpHost host;
    host.write("/proc/meminfo", "MemAvailable: 8388608 kB\n");
    host.write("/proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n");
    host.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    host.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
    host.write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "268435456\n");
    host.write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "134217728\n");
    EXPECT_THAT(check_memory(host.root()),
                ElementsAre(says(Level::warn, "128 MiB left of the 256 MiB")));
}

TEST(DoctorMemory, MayBeUnknown) {
    EXPECT_THAT(check_memory(MadeUpHost().root()), ElementsAre(says(Level::note, "meminfo")));
}

TEST(DoctorSharedMemory, IsMissedOnlyByOthers) {
    const MadeUpHost host;
    EXPECT_THAT(check_shared_memory(host.root()),
                ElementsAre(says(Level::ok, "memfd"), says(Level::warn, "no /dev/shm")));
}

TEST(DoctorSharedMemory, OfAContainersUsualSizeIsTooLittleForOthers) {
    const MadeUpHost host;
    host.write("/dev/shm/file", "");
    const auto answer = in_child(10s, [&]() -> std::string {
        if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return "no";
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
        const std::string shm = host.root() + "/dev/shm";
        if (::mount("none", shm.c_str(), "tmpfs", 0, "size=8m") != 0) return "no";
        return as_text(check_shared_memory(host.root()));
    });
    if (answer == "no") GTEST_SKIP() << "no file system may be mounted here";
    EXPECT_THAT(answer.value_or(""), HasSubstr("/dev/shm has 8 MiB in all"));
    EXPECT_THAT(answer.value_or(""), HasSubstr("--shm-size=1g"));
}

// What `look` finds where the kernel refuses a system call, as text.
std::string look_without(long number, const std::function<Findings()>& look) {
    const auto answer = in_child(20s, [&]() -> std::string {
        sock_filter program[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const sock_fprog filter{sizeof program / sizeof program[0], program};
        if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
            return "no filter";
        }
        return as_text(look());
    });
    return answer.value_or("nothing");
}

struct Refusal {
    const char* name;
    long number;
    const char* line;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }
class DoctorKernelRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(DoctorKernelRefuses, AndIsFoundTo) {
    const std::string text = look_without(GetParam().number, [] { return check_kernel(); });
    EXPECT_THAT(text, HasSubstr(GetParam().line));
    EXPECT_THAT(text, HasSubstr("note  kernel        a seccomp filter is at work"));
}

INSTANTIATE_TEST_SUITE_P(
    , DoctorKernelRefuses,
    testing::Values(
        Refusal{"Pidfds", SYS_pidfd_open,
                "FAIL  kernel        pidfd_open is refused: Operation not permitted"},
        Refusal{"MemoryOfOthers", SYS_process_vm_readv,
                "warn  kernel        ranks may not read each other's memory"},
        Refusal{"Membarrier", SYS_membarrier, "note  kernel        membarrier is refused"},
        Refusal{"Namespaces", SYS_unshare, "note  kernel        PID namespaces are refused"}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(DoctorSharedMemory, ThatCannotBeHadMakesJobsFail) {
    const std::string text = look_without(SYS_memfd_create, [] { return check_shared_memory(); });
    EXPECT_THAT(text, HasSubstr("FAIL  shared memory memory between ranks (memfd_create)"));
}

TEST(DoctorKernel, OfYamaLetsNoDebuggerAttach) {
    const MadeUpHost host;
    host.write("/proc/sys/kernel/yama/ptrace_scope", "2\n");
    host.write("/proc/self/status", "Name:\tddp-doctor\nSeccomp:\t2\n");
    const Findings found = check_kernel(host.root());
    EXPECT_THAT(found, Contains(says(Level::warn, "none but root's debuggers may attach")));
    EXPECT_THAT(found, Contains(says(Level::note, "a seccomp filter")));
    host.write("/proc/sys/kernel/yama/ptrace_scope", "1\n");
    EXPECT_THAT(check_kernel(host.root()), Not(Contains(says(Level::warn, "may attach"))));
}

TEST(DoctorLimits, AreTheCgroupsToo) {
    const MadeUpHost host;
    host.write("/proc/self/cgroup", "0::/job\n");
    host.write("/sys/fs/cgroup/job/pids.max", "100\n");
    host.write("/sys/fs/cgroup/job/pids.current", "40\n");
    EXPECT_THAT(check_limits(host.root()), Contains(says(Level::warn, "40 processes")));
    host.write("/sys/fs/cgroup/job/pids.max", "max\n");
    EXPECT_THAT(check_limits(host.root()), Not(Contains(says(Level::warn, "40 processes"))));
}

TEST(DoctorLimits, OfFilesAreNamed) {
    const auto answer = in_child(10s, [] {
        const rlimit one_mib{1 << 20, 1 << 20};
        ::setrlimit(RLIMIT_FSIZE, &one_mib);
        const rlimit few{100, 100};
        ::setrlimit(RLIMIT_NOFILE, &few);
        return as_text(check_limits());
    });
    EXPECT_THAT(answer.value_or(""), HasSubstr("no more than 100 open files"));
    EXPECT_THAT(answer.value_or(""), HasSubstr("files may have no more than 1048576 bytes"));
}

TEST(DoctorNetwork, WithoutLoopbackMakesJobsFail) {
    const auto answer = in_child(20s, [] {
        if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
            return std::string("no");
        }
        return as_text(check_network());
    });
    if (answer == "no") GTEST_SKIP() << "no network namespace may be made here";
    EXPECT_THAT(answer.value_or(""),
                HasSubstr("FAIL  network       nobody can be met on loopback"));
}

TEST(DoctorPort, IsFreeOrTaken) {
    const MadeUpHost host;
    const base::UniqueFd listener = base::listen_tcp_everywhere(0);
    const std::uint16_t port = base::local_port(listener.get());
    EXPECT_THAT(check_port(port, host.root()), ElementsAre(says(Level::warn, "is taken")));
}

TEST(DoctorPort, MayBeGivenToAnyProgramUnlessReserved) {
    const MadeUpHost host;
    host.write("/proc/sys/net/ipv4/ip_local_port_range", "1\t65535\n");
    EXPECT_THAT(check_port(7, host.root()), Contains(says(Level::warn, "(1 to 65535)")));
    for (const char* list : {"7", "1-6,7-9", "5,7,8"}) {
        host.write("/proc/sys/net/ipv4/ip_local_reserved_ports", std::string(list) + "\n");
        EXPECT_THAT(check_port(7, host.root()), Not(Contains(says(Level::warn, "(1 to 65535)"))))
            << list;
    }
    host.write("/proc/sys/net/ipv4/ip_local_reserved_ports", "6,8-70\n");
    const Findings found = check_port(7, host.root());
    EXPECT_THAT(found, Contains(says(Level::warn, "(1 to 65535)")));
    EXPECT_THAT(found.back().remedy, HasSubstr("ip_local_reserved_ports=6,8-70,7"));
}

TEST(DoctorGpus, AreAsNvidiaSmiSaysAndCanBeOpened) {
    const MadeUpHost host;
    EXPECT_THAT(check_gpus(host.root()), ElementsAre(says(Level::ok, "none here")));
    host.write("/dev/nvidiactl", "");
    host.write("/dev/nvidia0", "");
    const auto look_with = [&](const std::string& nvidia_smi) {
        host.write_program("/bin/nvidia-smi", nvidia_smi);
        const auto answer = in_child(60s, [&] {
            ::setenv("PATH", (host.root() + "/bin:/usr/bin:/bin").c_str(), 1);
            return as_text(check_gpus(host.root()));
        });
        return answer.value_or("nothing");
    };
    EXPECT_THAT(look_with("echo 'NVIDIA H200, 550.54, 143771 MiB, Default'"),
                HasSubstr("ok    GPUs          NVIDIA H200, 550.54, 143771 MiB, Default\n"));
    EXPECT_THAT(look_with("echo 'NVIDIA H200, 550.54, 143771 MiB, Prohibited'"),
                HasSubstr("FAIL  GPUs          NVIDIA H200"));
    EXPECT_THAT(look_with("echo; echo 'No devices were found'; exit 6"),
                HasSubstr("FAIL  GPUs          nvidia-smi: exit code 6: No devices were found"));
    EXPECT_THAT(look_with("exit 0"), HasSubstr("FAIL  GPUs          nvidia-smi lists none"));
    EXPECT_THAT(look_with("printf '\\033[2Jx\\n'"), HasSubstr("GPUs          ?[2Jx\n"));
    std::filesystem::remove(host.root() + "/dev/nvidia0");
    std::filesystem::create_directory(host.root() + "/dev/nvidia0");
    EXPECT_THAT(look_with("echo one"), HasSubstr("nvidia0 cannot be opened: Is a directory"));
}

TEST(DoctorTwoRanks, NeedTheirPrograms) {
    const MadeUpHost host;
    EXPECT_THAT(check_two_ranks(host.root()), ElementsAre(says(Level::fail, "no program ")));
}

TEST(DoctorTwoRanks, ThatFailSayWhatTheySaidLast) {
    const MadeUpHost host;
    host.write_program("/ddp-bench", "");
    host.write_program("/ddp-launch", "echo first; echo the sums are wrong >&2; exit 3");
    EXPECT_THAT(check_two_ranks(host.root()),
                ElementsAre(says(Level::fail, "exit code 3: the sums are wrong")));
    host.write_program("/ddp-launch",
                       "echo 'ddp-launch:   error    ranks 0, 1: no memory'; echo rest; exit 1");
    EXPECT_THAT(
        check_two_ranks(host.root()),
        ElementsAre(says(Level::fail, "exit code 1: ddp-launch:   error    ranks 0, 1: no")));
    host.write_program("/ddp-launch", "kill -9 $$");
    EXPECT_THAT(check_two_ranks(host.root()), ElementsAre(says(Level::fail, "signal 9: ")));
}

TEST(DoctorTwoRanks, ThatAreFarBelowTheFloorAreWorthALook) {
    const MadeUpHost host;
    host.write_program("/ddp-bench", "");
    const auto launch_with = [&](const std::string& share) {
        host.write_program(
            "/ddp-launch",
            "for word; do file=$word; done; { echo '{\"bytes\": 4, \"time_us\": 0.5}'; echo "
            "'{\"bytes\": 4194304, \"time_us\": 900, \"floor_share\": " +
                share + "}'; } >\"$file\"");
        return check_two_ranks(host.root());
    };
    EXPECT_THAT(launch_with("0.05"), ElementsAre(says(Level::warn, "(5 % of what")));
    EXPECT_THAT(launch_with("0.6"),
                ElementsAre(says(Level::ok, "4 bytes in 0.5 us, 4 MiB in 900 us (60 %")));
    host.write_program("/ddp-launch",
                       "for word; do file=$word; case $word in --floor) exit 1;; esac; done; echo "
                       "'{\"bytes\": 4, \"time_us\": 0.5}' >\"$file\"");
    EXPECT_THAT(check_two_ranks(host.root()), ElementsAre(says(Level::note, "too little memory")));
    host.write_program("/ddp-launch", "exit 0");
    EXPECT_THAT(check_two_ranks(host.root()), ElementsAre(says(Level::fail, "nothing")));
}

TEST(DoctorChild, MayCrashThrowOrHang) {
    EXPECT_EQ(in_child(10s, [] { return std::puts("noise"), std::string("fine"); }), "fine");
    EXPECT_EQ(in_child(10s, []() -> std::string { throw std::runtime_error("no"); }), std::nullopt);
    EXPECT_EQ(in_child(10s, [] { return ::raise(SIGKILL), std::string("late"); }), std::nullopt);
    EXPECT_EQ(in_child(50ms, [] { return ::pause(), std::string("late"); }), std::nullopt);
    EXPECT_EQ(in_child(10s, [] { return std::string(300'000, 'x'); })->size(), 300'000U);
}

TEST(DoctorChild, RunsPrograms) {
    const ProgramEnd end = run_program({"sh", "-c", "echo out; echo err >&2; exit 5"}, 10s);
    EXPECT_EQ(end.exit_code, 5);
    EXPECT_EQ(end.output, "out\nerr\n");
    EXPECT_EQ(run_program({"/no/such/program"}, 10s).exit_code, 127);
    EXPECT_EQ(describe(run_program({"sleep", "60"}, 50ms), 20s), "not done in 20 s");
    EXPECT_EQ(describe(run_program({"sh", "-c", "kill -9 $$"}, 10s), 20s), "signal 9");
    // Nothing more will come of its output, and it goes on.
    const std::string silent = "exec >&- 2>&-; exec sleep 60";
    EXPECT_EQ(describe(run_program({"sh", "-c", silent}, 50ms), 20s), "not done in 20 s");
    ::setenv("DOCTOR_A", "1", 1);
    ::setenv("DOCTORB", "2", 1);
    EXPECT_EQ(run_program({"sh", "-c", "echo $DOCTOR_A-$DOCTORB"}, 10s, {"DOCTOR_"}).output,
              "-2\n");
}

TEST(DoctorFindings, AreShownWithTheirRemedies) {
    const Findings found{{"a", Level::ok, "fine"},
                         {"b", Level::warn, "slow", "make it fast"},
                         {"c", Level::fail, "broken \xff", "mend it"}};
    EXPECT_EQ(as_text(found),
              "ok    a             fine\n"
              "warn  b             slow\n"
              "                    do: make it fast\n"
              "FAIL  c             broken \xff\n"
              "                    do: mend it\n"
              "ddp-doctor: 1 thing will make jobs fail, 1 thing is worth a look\n");
    EXPECT_FALSE(is_fit(found));
    EXPECT_TRUE(is_fit(std::span(found).first(2)));
    EXPECT_THAT(as_text(std::span(found).first(1)), HasSubstr("ddp-doctor: this host is fit\n"));
    EXPECT_THAT(as_json(found),
                AllOf(HasSubstr("\"fit\": false"), HasSubstr("\"level\": \"fail\"")));
}

}  // namespace
}  // namespace ddp::doctor
