// ddp.h, called from C by a worker of its own, and from here where it refuses what it is given.
#define DDP_NO_CALL_SITES
#include <ddp/ddp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "examples/run_program.hpp"
#include "store/temp_dir.hpp"

namespace ddp::tests {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramResult run_case(int ranks, const std::string& name, const std::string& argument = {}) {
    Command command{DDP_C_WORKER, name};
    if (!argument.empty()) command.push_back(argument);
    return run_ranks_of(ranks, command);
}

class CWorker : public ::testing::TestWithParam<int> {};

TEST_P(CWorker, GetsWhatCollectivesPromise) {
    const ProgramResult result = run_case(GetParam(), "collectives");
    EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_P(CWorker, AveragesGradients) {
    const ProgramResult result = run_case(GetParam(), "reducer");
    EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_P(CWorker, SharesTheSamples) {
    const ProgramResult result = run_case(GetParam(), "sampler");
    EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_P(CWorker, SavesAndResumes) {
    const store_test::TempDir folder;
    const ProgramResult result = run_case(GetParam(), "checkpoints", folder.file("."));
    EXPECT_EQ(result.exit_code, 0) << result.err;
}

INSTANTIATE_TEST_SUITE_P(Ranks, CWorker, ::testing::Values(1, 2, 3),
                         ::testing::PrintToStringParamName());

TEST(CWorkerFailure, NamesTheLinesOfBothCalls) {
    const ProgramResult result = run_case(2, "mismatch");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(ContainsRegex("broadcast of 1 float32.*c_worker.c:[0-9]+"),
                                  ContainsRegex("all_reduce of 1 float32.*c_worker.c:[0-9]+")));
}

TEST(CWorkerFailure, IsBlamedOnTheRankThatDied) {
    const ProgramResult result = run_case(2, "wait_for_dead");
    EXPECT_EQ(result.exit_code, 128 + SIGABRT) << result.err;
    EXPECT_THAT(result.out, HasSubstr("rank 1 is to blame"));
    EXPECT_THAT(result.err, HasSubstr("rank 1"));
}

TEST(CWorkerFailure, IsTheOneThatTheBodyReturns) {
    const ProgramResult result = run_case(2, "return_peer_error");
    EXPECT_EQ(result.exit_code, 128 + SIGABRT) << result.err;
    EXPECT_THAT(result.err, HasSubstr("rank 0 (because of rank 1, exit code 82)"));
}

TEST(CWorkerFailure, InABackwardEndsThatOfTheOthers) {
    const ProgramResult result = run_case(2, "leave_backward");
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.out, HasSubstr("rank 1 has left the backward"));
    EXPECT_THAT(result.err, HasSubstr("a kernel has failed"));
}

TEST(CWorkerFailure, OfItsOwnIsTheReport) {
    const ProgramResult result = run_case(2, "give_up");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("there is no data set"));
}

// In this process: a world of one.
class CInterface : public ::testing::Test {
protected:
    CInterface() { EXPECT_EQ(ddp_init_process_group("", &group), DDP_OK) << ddp_last_error(); }
    ~CInterface() override { ddp_group_destroy(group); }
    CInterface(const CInterface&) = delete;
    CInterface& operator=(const CInterface&) = delete;

    ddp_tensor number() { return ddp_cpu_tensor(&value, 1, DDP_FLOAT32); }

    float value = 3;
    ddp_group* group = nullptr;
};

TEST_F(CInterface, RefusesWhatNoProgramCanMean) {
    EXPECT_EQ(ddp_all_reduce(nullptr, number(), DDP_SUM, nullptr, nullptr), DDP_USAGE_ERROR);
    EXPECT_STREQ(ddp_last_error(), "ddp_all_reduce: the group is NULL");
    EXPECT_EQ(ddp_last_error_rank(), -1);
    ddp_tensor tensor = number();
    tensor.dtype = 12;
    EXPECT_EQ(ddp_broadcast(group, tensor, 0, nullptr, nullptr), DDP_USAGE_ERROR);
    EXPECT_THAT(ddp_last_error(), StartsWith("ddp_broadcast: a tensor's dtype is 12"));
    tensor = number();
    tensor.device = -1;
    EXPECT_EQ(ddp_broadcast(group, tensor, 0, nullptr, nullptr), DDP_USAGE_ERROR);
    for (const std::size_t count : {std::size_t{1} << 62U, ~std::size_t{0}}) {
        tensor = ddp_cpu_tensor(&value, count, DDP_FLOAT32);
        EXPECT_EQ(ddp_broadcast(group, tensor, 0, nullptr, nullptr), DDP_USAGE_ERROR);
        EXPECT_THAT(ddp_last_error(), StartsWith("ddp_broadcast: a tensor has "));
    }
    tensor = ddp_cpu_tensor(nullptr, 4, DDP_INT32);
    EXPECT_EQ(ddp_broadcast(group, tensor, 0, nullptr, nullptr), DDP_USAGE_ERROR);
    EXPECT_STREQ(ddp_last_error(), "ddp_broadcast: a tensor's data is NULL");
    EXPECT_EQ(ddp_all_reduce(group, number(), 8, nullptr, nullptr), DDP_USAGE_ERROR);
    EXPECT_EQ(ddp_broadcast(group, number(), 5, nullptr, nullptr), DDP_USAGE_ERROR);
    EXPECT_EQ(ddp_init_process_group(nullptr, nullptr), DDP_USAGE_ERROR);
    EXPECT_EQ(ddp_group_rank(nullptr), -1);
    EXPECT_STREQ(ddp_group_backend(nullptr), "");
    ddp_publish_progress(nullptr, 1, 1);
    EXPECT_EQ(ddp_all_reduce(group, number(), DDP_SUM, nullptr, nullptr), DDP_OK)
        << "the group is in order: " << ddp_last_error();
}

TEST_F(CInterface, NamesOptionsThatThereAreNot) {
    const auto refused = [](const char* options) -> std::string {
        ddp_group* none = nullptr;
        EXPECT_EQ(ddp_init_process_group(options, &none), DDP_USAGE_ERROR);
        EXPECT_EQ(none, nullptr);
        return ddp_last_error();
    };
    EXPECT_EQ(refused("backends=shm"),
              "ddp_init_process_group: there is no option backends; there are: backend, timeout");
    EXPECT_THAT(refused("backend=mpi"), HasSubstr("there is no backend 'mpi'; there are: "));
    EXPECT_THAT(refused("shm"), HasSubstr("option 'shm' is not name=value"));
    EXPECT_THAT(refused("timeout=1,timeout=2"), HasSubstr("given twice"));
    for (const char* time : {"timeout=", "timeout=0", "timeout=-1", "timeout=1s", "timeout=nan",
                             "timeout=1e99", "timeout= 1"}) {
        EXPECT_THAT(refused(time), HasSubstr("option timeout")) << time;
    }
}

TEST_F(CInterface, RefusesTensorsWhoseShapeIsAnother) {
    const std::int64_t shape[2] = {2, 3};
    const ddp_named_tensor tensor{"w", number(), shape, 2};
    EXPECT_EQ(ddp_write_tensors("/nowhere", &tensor, 1), DDP_USAGE_ERROR);
    EXPECT_STREQ(ddp_last_error(),
                 "ddp_write_tensors: tensor w has 1 elements, not those of its shape, [2, 3]");
    const std::int64_t huge[2] = {std::int64_t{1} << 32U, std::int64_t{1} << 32U};
    const ddp_named_tensor wrapped{"w", ddp_cpu_tensor(nullptr, 0, DDP_FLOAT32), huge, 2};
    EXPECT_EQ(ddp_write_tensors("/nowhere", &wrapped, 1), DDP_USAGE_ERROR);
    const ddp_named_tensor nameless{nullptr, number(), nullptr, 0};
    EXPECT_EQ(ddp_write_tensors("/nowhere", &nameless, 1), DDP_USAGE_ERROR);
    EXPECT_EQ(ddp_write_tensors("/nowhere", nullptr, 1), DDP_USAGE_ERROR);
    const ddp_named_tensor good{"w", number(), nullptr, 0};
    EXPECT_EQ(ddp_read_tensors("/nowhere", &good, 1), DDP_CHECKPOINT_ERROR);
    EXPECT_EQ(ddp_read_tensors(nullptr, &good, 1), DDP_USAGE_ERROR);
}

TEST_F(CInterface, RefusesSamplersOfNoRank) {
    ddp_sampler* sampler = nullptr;
    EXPECT_EQ(ddp_sampler_create(5, -1, 2, nullptr, &sampler), DDP_USAGE_ERROR);
    EXPECT_EQ(ddp_sampler_create(5, 2, 2, nullptr, &sampler), DDP_USAGE_ERROR);
    EXPECT_EQ(ddp_sampler_create(5, 0, 2, "shuffle=maybe", &sampler), DDP_USAGE_ERROR);
    EXPECT_EQ(ddp_sampler_create(5, 0, 2, "seed=1.5", &sampler), DDP_USAGE_ERROR);
    EXPECT_EQ(sampler, nullptr);
    EXPECT_EQ(ddp_sampler_set_epoch(nullptr, 1, 0), DDP_USAGE_ERROR);
}

TEST_F(CInterface, EndsHandlesOfNothing) {
    ddp_group_destroy(nullptr);
    ddp_reducer_destroy(nullptr);
    ddp_sampler_destroy(nullptr);
    ddp_checkpoints_destroy(nullptr);
    ddp_adopted_destroy(nullptr);
    EXPECT_EQ(ddp_wait(nullptr, nullptr), DDP_OK);
}

TEST(CReportFailure, TellsWhichExitCodeBlamesWhom) {
    EXPECT_EQ(ddp_report_failure("no data", -1), 1);
    EXPECT_EQ(ddp_report_failure("rank 5 has died", 5), 82);
}

TEST(CRunWorker, LeavesWithTheStatusOfItsBody) {
    const auto leave = [](ddp_status (*body)(void*)) { return ddp_run_worker(body, nullptr); };
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(leave([](void*) -> ddp_status { return DDP_OK; }), 0);
    EXPECT_EQ(leave([](void*) { return ddp_fail("no data"); }), 1);
    EXPECT_EQ(leave([](void*) -> ddp_status { return DDP_NO_MEMORY; }), 1);
    EXPECT_EQ(leave(nullptr), 1);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("no data"), HasSubstr("the worker's body has returned 8"),
                      HasSubstr("ddp_run_worker: the body is NULL")));
}

}  // namespace
}  // namespace ddp::tests
