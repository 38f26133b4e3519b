// What is advised for which failure, as a table.
#include "launcher/report/hints.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct HintCase {
    HintFacts facts;
    const char* hint;  // part of the first one
};

std::vector<HintCase> hint_cases() {
    return {
        {{{.signal = SIGKILL}, "", OomEvidence::cgroup}, "the kernel's OOM killer ended it"},
        {{{.signal = SIGKILL}, "", OomEvidence::host}, "probably the kernel's OOM killer"},
        {{{.signal = SIGKILL}, "", OomEvidence::none}, "no OOM kill was counted"},
        {{{.signal = SIGKILL}, "", OomEvidence::unknown}, "maybe the kernel's OOM killer"},
        {{{.signal = SIGILL}, ""}, "another CPU"},
        {{{.signal = SIGBUS}, ""}, "df /dev/shm"},
        {{{.signal = SIGSEGV}, ""}, "ulimit -c unlimited"},
        {{{.signal = SIGSEGV}, ""}, "--wrap="},
        {{{.signal = SIGPIPE}, ""}, "nobody reads"},
        {{{.code = 82}, ""}, "because of another rank"},
        {{{.code = 83}, ""}, "its own watchdog"},
        {{{.code = 126}, ""}, "no executable file"},
        {{{.code = 127}, "bash: line 1: trian: command not found"}, "not found along PATH"},
        {{{.code = 127},
          "./train: error while loading shared libraries: libfoo.so.3: cannot open shared object "
          "file: No such file or directory\n"},
         "the shared library libfoo.so.3 is not found: install its package, or name its folder in "
         "LD_LIBRARY_PATH"},
        {{{.signal = SIGABRT},
          "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  "
          "[enforce fail at ./gloo/transport/tcp/pair.cc:510] op.preamble.length <= op.nbytes. 8 "
          "vs 4\n"},
         "the ranks' collectives differ"},
        {{{.code = 139}, ""}, "139 is what shells return for SIGSEGV"},
        {{{.code = 1}, "ModuleNotFoundError: No module named 'torch'\n"}, "the module torch"},
        {{{.code = 1}, "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"}, "a smaller"},
        {{{.code = 1}, "torch.OutOfMemoryError: CUDA out of memory."}, "nvidia-smi"},
        {{{.signal = SIGABRT}, "CUDA error: invalid device ordinal"}, "--nproc-per-node=gpu"},
        {{{.code = 1}, "NCCL WARN Duplicate GPU detected : rank 1 and rank 0"}, "same GPU"},
        {{{.code = 1}, "ncclUnhandledCudaError: unhandled cuda error"}, "NCCL_DEBUG=INFO"},
        {{{.code = 1}, "unhandled system error, NCCL version"}, "NCCL_SOCKET_IFNAME"},
        {{{.code = 1}, "OSError: [Errno 98] Address already in use"}, "leave MASTER_PORT"},
        {{{.code = 2}, "train.py: error: unrecognized arguments: --local_rank=1"}, "LOCAL_RANK"},
        {{{.code = 1}, "open: No space left on device"}, "see df"},
        {{{.code = 1}, "./a: libc.so.6: version `GLIBC_2.38' not found"}, "newer system"},
    };
}

TEST(Hints, FitTheFailure) {
    for (const HintCase& one : hint_cases()) {
        const auto hints = hints_for(one.facts);
        ASSERT_FALSE(hints.empty()) << one.hint;
        EXPECT_THAT(hints.front(), HasSubstr(one.hint));
        for (const std::string& hint : hints) EXPECT_EQ(hint.find('\n'), hint.npos) << hint;
    }
}

// To be copied as they are.
TEST(Hints, HaveOptionsForTheRankThatFailed) {
    const HintFacts crashed{{.signal = SIGSEGV}, "", OomEvidence::unknown, 3};
    EXPECT_THAT(hints_for(crashed), ElementsAre(AllOf(HasSubstr("--wrap='3:gdb -batch "),
                                                      HasSubstr("--break-on-failure"))));
    const HintFacts wrote_wrong{
        {.code = 1}, "an illegal memory access was encountered", OomEvidence::unknown, 12};
    EXPECT_THAT(hints_for(wrote_wrong), ElementsAre(HasSubstr("--wrap='12:compute-sanitizer'")));
}

TEST(Hints, AreNotGivenForNothing) {
    for (const int code : {0, 1, 2, 7, 81, 100, 128, 200, 255}) {
        EXPECT_THAT(hints_for({{.code = code}, "epoch 3 loss 0.1\n"}), IsEmpty()) << code;
    }
    EXPECT_THAT(hints_for({{.signal = SIGTERM}, ""}), IsEmpty());
    EXPECT_THAT(hints_for({{.code = 1}, "needs GLIBC_2.3"}), IsEmpty());
    EXPECT_THAT(hints_for({{.code = 1}, "error while loading shared libraries: "}), IsEmpty());
    EXPECT_THAT(hints_for({{.code = 1}, "No module named 'a\nb'"}), IsEmpty());
}

TEST(Hints, AreAtMostThreeAndNoneTwice) {
    const std::string text =
        "Address already in use EADDRINUSE CUDA out of memory. No space left on device "
        "std::bad_alloc";
    const auto hints = hints_for({{.signal = SIGKILL}, text});
    EXPECT_EQ(hints.size(), 3U);
    EXPECT_THAT(hints_for({{.code = 1}, "Address already in use (EADDRINUSE)"}),
                ElementsAre(HasSubstr("leave MASTER_PORT")));
}

}  // namespace
}  // namespace ddp::launcher
