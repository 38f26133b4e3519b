// Groups that share NCCL's resources with the one they come from (DDP_NCCL_SHARE): what is shared,
// when it goes, and that they fail together. A process a rank, over the stand-ins.
#include "process_group/gpu_graph.hpp"
#include "process_group/gpus.hpp"
#include "process_group/launchers_region.hpp"
#include "process_group/reports.hpp"
#include "reducer/gpu_model.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Before anything joins.
[[maybe_unused]] const Gpus& the_gpus = gpus();

int calls_of(const std::string& function) {
    return stand_in_function<int(const char*)>("ddp_stand_in_calls",
                                               ::getenv("DDP_NCCL_LIBRARY"))(function.c_str());
}

ProcessGroup join_sharing(const Join& join) {
    ::setenv("DDP_NCCL_SHARE", "1", 1);
    return join();
}

void on_sharing_ranks(int ranks, const std::function<void(ProcessGroup&)>& body) {
    run_joining_ranks(ranks, [&](RankReporter&, const Join& join) {
        ProcessGroup group = join_sharing(join);
        body(group);
    });
}

int sum_of_ones(ProcessGroup& group) {
    GpuTensor<int> ones(group, 100, 1);
    group.all_reduce(ones.view()).wait();
    return ones.values[99];
}

std::string messages_of(const std::vector<RankFailure>& reports) {
    std::string messages;
    for (const RankFailure& report : reports) messages += report.message + "\n";
    return messages;
}

TEST(GpuSharing, MakesGroupsOutOfTheirParentsCommunicator) {
    on_sharing_ranks(4, [](ProcessGroup& group) {
        ProcessGroup pair = group.split({.color = group.rank() % 2, .key = -group.rank()});
        EXPECT_EQ(pair.device(), group.device());
        GpuTensor<int> values(group, 100, group.rank());
        pair.broadcast(values.view(), Root{0}).wait();
        EXPECT_EQ(values.values[99], group.rank() % 2 == 0 ? 2 : 3) << "ordered by key";
        ProcessGroup alone = pair.split({.color = pair.rank()});
        EXPECT_EQ(sum_of_ones(alone), 1);
        const std::array some{3, 0, 1};
        auto three = group.new_group(some);
        EXPECT_EQ(three.has_value(), group.rank() != 2);
        if (three) {
            EXPECT_EQ(sum_of_ones(*three), 3);
        }
        EXPECT_EQ(sum_of_ones(group), 4);
        EXPECT_EQ(calls_of("ncclCommSplit"), 3) << "by who is in no group, too";
        EXPECT_EQ(calls_of("ncclCommInitRankConfig"), 1);
    });
}

struct Splits {
    int of_nccl, made;
    bool operator==(const Splits&) const = default;
};
Splits splits_of(const Join& join, const char* setting) {
    ::setenv("DDP_NCCL_SHARE", setting, 1);
    ProcessGroup group = join();
    ProcessGroup part = group.split({});
    EXPECT_EQ(sum_of_ones(part), 2);
    return {calls_of("ncclCommSplit"), calls_of("ncclCommInitRankConfig")};
}

TEST(GpuSharing, IsForRanksThatAllSaySo) {
    run_joining_ranks(2, [](RankReporter&, const Join& join) {
        EXPECT_EQ(splits_of(join, own_rank() == 0 ? "1" : "0"), (Splits{0, 2}));
    });
}

// Rank 1 starts its two operations in the other order.
std::vector<RankFailure> reports_of_two_orders(const char* setting) {
    return reports_of(2,
                      [setting](const Join& join) {
                          ::setenv("DDP_NCCL_SHARE", setting, 1);
                          ProcessGroup group = join();
                          ProcessGroup part = group.split({});
                          const bool is_second = group.rank() == 1;
                          GpuTensor<int> ones(group, 100, 1), more(group, 100, 1);
                          Work first = (is_second ? part : group).all_reduce(ones.view());
                          Work second = (is_second ? group : part).all_reduce(more.view());
                          std::string error = error_of([&] { first.wait(); });
                          EXPECT_EQ(error_of([&] { second.wait(); }), error);
                          return error;
                      },
                      {.timeout = 500ms});
}

// By which NCCL is seen to share.
TEST(GpuSharing, KeepsOneOrderOverAllGroups) {
    for (const RankFailure& report : reports_of_two_orders("0")) {
        EXPECT_EQ(report.message, "nothing");
    }
    const auto reports = reports_of_two_orders("1");
    ASSERT_EQ(reports.size(), 2U) << messages_of(reports);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message, AnyOf(StartsWith("TimeoutError "), StartsWith("PeerError(")));
    }
}

TEST(GpuSharing, NeedsANewerNcclAndSaysSo) {
    for (const std::string older : {"libnccl_stand_in_older.so", "libnccl_stand_in_oldest.so"}) {
        run_joining_ranks(2, [&](RankReporter&, const Join& join) {
            ::setenv("DDP_NCCL_LIBRARY", stand_in_path(older).c_str(), 1);
            ::testing::internal::CaptureStderr();
            EXPECT_EQ(splits_of(join, "1"), (Splits{0, 2}));
            const std::string log = ::testing::internal::GetCapturedStderr();
            EXPECT_EQ(
                log.find("DDP_NCCL_SHARE needs NCCL 2.22 or newer, and ") != std::string::npos,
                own_rank() == 0)
                << log;
        });
    }
}

// NCCL ends one regularly when the work of all has ended, which may wait for this rank.
TEST(GpuSharing, LeavesAGroupOnOneRankWhileOthersUseWhatItShares) {
    on_sharing_ranks(3, [](ProcessGroup& group) {
        std::optional<ProcessGroup> part = group.split({});
        GpuTensor<int> ones(group, 100, 1);
        Work sum;
        if (group.rank() == 0) {
            sum = group.all_reduce(ones.view());
            part.reset();
        } else {
            std::this_thread::sleep_for(100ms);
            sum = group.all_reduce(ones.view());
        }
        sum.wait();
        EXPECT_EQ(ones.values[99], 3);
        EXPECT_EQ(calls_of("ncclCommFinalize"), 0);
    });
}

TEST(GpuSharing, GivesBackEverythingWithTheLastGroup) {
    for (const bool parent_first : {false, true}) {
        run_joining_ranks(2, [&](RankReporter&, const Join& join) {
            std::optional<ProcessGroup> group = join_sharing(join);
            std::optional<ProcessGroup> part = group->split({});
            static_cast<void>(part->split({}));
            (parent_first ? group : part).reset();
            EXPECT_EQ(sum_of_ones(parent_first ? *part : *group), 2);
            EXPECT_EQ(calls_of("ncclCommFinalize"), 0);
            group.reset();
            part.reset();
            EXPECT_EQ(calls_of("ncclCommFinalize"), 3);
            EXPECT_EQ(calls_of("ncclCommAbort") + calls_of("ncclCommRevoke"), 0);
        });
    }
}

// The last group's ranks leave seconds apart: then NCCL aborts what cannot be finalized.
TEST(GpuSharing, EndsQuietlyWhereAnotherRankIsLater) {
    run_joining_ranks(2, [](RankReporter&, const Join& join) {
        ::testing::internal::CaptureStderr();
        {
            ProcessGroup group = join_sharing(join);
            ProcessGroup part = group.split({});
            EXPECT_EQ(sum_of_ones(part), 2);
            if (group.rank() == 1) std::this_thread::sleep_for(3s);
        }
        EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    });
}

TEST(GpuSharing, LeavesGraphsThatOutliveAllGroups) {
    run_joining_ranks(1, [](RankReporter&, const Join& join) {
        ::setenv("DDP_NCCL_ABORT_TIMEOUT", "1", 1);
        std::optional<ProcessGroup> group = join_sharing(join);
        const GpuStream stream;
        GpuTensor<float> values(*group, 100, 1.0F);
        std::optional<ProcessGroup> part = group->split({});
        GpuGraph graph(
            stream, [&] { group->all_reduce(values.view(), ReduceOp::sum, stream).wait(stream); });
        ::testing::internal::CaptureStderr();
        group.reset();
        EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
        EXPECT_EQ(sum_of_ones(*part), 1);
        ::testing::internal::CaptureStderr();
        part.reset();
        EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                    HasSubstr("a graph outlives its group"));
    });
}

TEST(GpuSharing, GivesBackRegisteredMemoryAfterItsGroup) {
    run_joining_ranks(2, [](RankReporter&, const Join& join) {
        ::setenv("DDP_NCCL_REGISTER", "1", 1);
        ProcessGroup group = join_sharing(join);
        Tensor outlives;
        {
            ProcessGroup part = group.split({});
            outlives = part.allocate({100}, DType::float32, part.device());
            part.all_reduce(outlives.view()).wait();
        }
        outlives = {};
        EXPECT_EQ(calls_of("ncclCommWindowDeregister"), 1);
        EXPECT_EQ(sum_of_ones(group), 2);
    });
}

// Of its pair's operation, one of the parent's that comes after it, and the CPU's half: all the
// same. The pair of ranks 0 and 1 fails.
std::string errors_of_all(ProcessGroup& group, ProcessGroup& part) {
    GpuTensor<int> ones(group, 100, 1), more(group, 100, 1);
    Work in_part, in_group;
    std::string errors = error_of([&] { in_part = part.all_reduce(ones.view()); });
    if (errors == "nothing") {
        errors = error_of([&] { in_group = group.all_reduce(more.view()); });
        if (errors == "nothing") errors = error_of([&] { in_group.wait(); });
        const std::string of_part = error_of([&] { in_part.wait(); });
        if (of_part == "nothing") {
            EXPECT_EQ(ones.values[99], group.rank() < 2 ? -1 : 2);
        } else {
            EXPECT_EQ(of_part, errors);
        }
    }
    EXPECT_EQ(error_of([&] { part.barrier().wait(); }), errors);
    EXPECT_EQ(error_of([&] { group.all_reduce(1); }), errors);
    return errors;
}

void expect_all_blame_rank_1(const std::vector<RankFailure>& reports, std::size_t ranks) {
    ASSERT_EQ(reports.size(), ranks) << messages_of(reports);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message, HasSubstr("PeerError(1) ")) << "rank " << report.rank;
    }
}

void die_in_a_part() {
    const auto reports = reports_of(4,
                                    [](const Join& join) {
                                        ProcessGroup group = join_sharing(join);
                                        ProcessGroup pair =
                                            group.split({.color = group.rank() / 2});
                                        EXPECT_EQ(sum_of_ones(pair), 2);
                                        if (group.rank() == 1) ::kill(::getpid(), SIGKILL);
                                        return errors_of_all(group, pair);
                                    },
                                    {.timeout = 60s}, {1});
    expect_all_blame_rank_1(reports, 3);
}

TEST(GpuSharing, ADeathIsNamedInEachGroupThatShares) {
    for (int i = 0; i < 10; ++i) die_in_a_part();
}
TEST(GpuSharing, SoakDeath) {
    for (int i = 0; i < 200; ++i) die_in_a_part();
}

// NCCL's abort of a part would let the parent's operation end, as if it were done.
void hang_in_a_part() {
    const auto reports = reports_of(4, [](const Join&) {
        ::setenv("DDP_NCCL_SHARE", "1", 1);
        const bool is_first_pair = own_rank() < 2;
        ProcessGroup group =
            init_process_group({.timeout = is_first_pair ? std::chrono::milliseconds{500} : 60s});
        ProcessGroup pair = group.split({.color = group.rank() / 2});
        const std::optional<ScopedKnob> fault =
            is_first_pair ? std::optional<ScopedKnob>(std::in_place, "FAULTS", "hang:1:0")
                          : std::nullopt;
        return errors_of_all(group, pair);
    });
    ASSERT_EQ(reports.size(), 4U) << messages_of(reports);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message,
                    AnyOf(HasSubstr("TimeoutError nccl: "), HasSubstr("PeerError(")))
            << "rank " << report.rank;
    }
}

TEST(GpuSharing, NoOperationOfAnotherGroupEndsWithTheAbort) {
    for (int i = 0; i < 4; ++i) hang_in_a_part();
}
TEST(GpuSharing, SoakHang) {
    for (int i = 0; i < 200; ++i) hang_in_a_part();
}

// NCCL's abort waits for the graphs of one, and the program's thread for the abort of all.
TEST(GpuSharing, ADeathIsNamedWhileThereIsAGraph) {
    const auto reports = reports_of(
        2,
        [](const Join& join) {
            ::setenv("DDP_NCCL_ABORT_TIMEOUT", "5", 1);
            ProcessGroup group = join_sharing(join);
            ProcessGroup part = group.split({});
            const GpuStream stream;
            GpuTensor<int> ones(group, 100, 1);
            GpuGraph graph(
                stream, [&] { group.all_reduce(ones.view(), ReduceOp::sum, stream).wait(stream); });
            if (group.rank() == 1) ::kill(::getpid(), SIGKILL);
            return error_of([&] { sum_of_ones(part); });
        },
        {.timeout = 60s}, {1});
    expect_all_blame_rank_1(reports, 1);
}

// Rank 2 knows nothing of rank 1, whose death ends rank 3's groups; rank 3 lives on, and says so.
TEST(GpuSharing, ARankHearsOfAFailureThatIsAnotherGroups) {
    auto reports = reports_of(4,
                              [](const Join& join) {
                                  ProcessGroup group = join_sharing(join);
                                  ProcessGroup pair = group.split({.color = group.rank() / 2});
                                  if (group.rank() == 1) ::kill(::getpid(), SIGKILL);
                                  if (group.rank() == 2) {
                                      return error_of([&] { sum_of_ones(pair); });
                                  }
                                  std::string error = error_of([&] { sum_of_ones(group); });
                                  if (group.rank() == 3) std::this_thread::sleep_for(2s);
                                  return error;
                              },
                              {.timeout = 60s}, {1});
    const auto second = std::ranges::find(reports, 2, &RankFailure::rank);
    ASSERT_NE(second, reports.end()) << messages_of(reports);
    EXPECT_THAT(second->message, AllOf(HasSubstr("PeerError(3) "), HasSubstr(" failed during ")));
    reports.erase(second);
    expect_all_blame_rank_1(reports, 2);
}

// What all ranks report whose split meets the fault; all their groups have failed then. Rank 2 is in
// no group of it.
std::vector<RankFailure> reports_of_split(const char* fault, const InitOptions& init,
                                          std::vector<int> may_die = {}) {
    return reports_of(
        3,
        [fault](const Join& join) {
            ProcessGroup group = join_sharing(join);
            ProcessGroup other = group.split({});
            const ScopedKnob knob("FAULTS", fault);
            const std::array two{0, 1};
            std::string error = error_of([&] { static_cast<void>(other.new_group(two)); });
            EXPECT_NE(error_of([&] { sum_of_ones(other); }), "nothing");
            EXPECT_NE(error_of([&] { sum_of_ones(group); }), "nothing");
            return error;
        },
        init, std::move(may_die));
}

TEST(GpuSharing, ASplitThatNcclRefusesOnOneRankEndsTheGroupsOnAll) {
    const auto reports = reports_of_split("fail:1:init:3", {.timeout = 60s});
    ASSERT_EQ(reports.size(), 3U) << messages_of(reports);
    EXPECT_THAT(reports[1].message,
                AllOf(HasSubstr("BackendError nccl: the split of its communicator"),
                      HasSubstr("ncclCommSplit")));
    EXPECT_THAT(reports[0].message, HasSubstr("PeerError(1) "));
    EXPECT_THAT(reports[2].message, HasSubstr("PeerError(1) "));
}

// On the others it is done; the new group's ranks would wait for rank 1, which lives on.
TEST(GpuSharing, ASplitThatNcclRefusesAtItsEndEndsTheGroupsOnAll) {
    const auto reports = reports_of(
        3,
        [](const Join& join) {
            const auto region = launchers_region();
            ProcessGroup group = join_sharing(join);
            const ScopedKnob knob("FAULTS", "fail:1:split:3");
            const std::array two{0, 1};
            std::string error = error_of([&] { static_cast<void>(group.new_group(two)); });
            mark_in(region, group);
            wait_for_marks(region, group);
            return error;
        },
        {.timeout = 20s});
    ASSERT_EQ(reports.size(), 3U) << messages_of(reports);
    EXPECT_THAT(reports[1].message, HasSubstr("the split of its communicator"));
    EXPECT_THAT(reports[0].message, HasSubstr("PeerError(1) "));
    EXPECT_THAT(reports[2].message, HasSubstr("PeerError(1) "));
}

// On rank 2, which is in no group of it, the split is done, and it waits for the others.
TEST(GpuSharing, ASplitThatHangsEndsAtTheDeadline) {
    const auto reports = reports_of_split("hang:1:init", {.timeout = 500ms});
    ASSERT_EQ(reports.size(), 3U) << messages_of(reports);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message, AnyOf(StartsWith("TimeoutError "), StartsWith("PeerError(")));
        EXPECT_THAT(report.message,
                    HasSubstr(report.rank < 2 ? "the split of its communicator" : ""));
    }
}

TEST(GpuSharing, ADeathAmidASplitIsNamed) {
    const auto reports = reports_of_split("die:1:init", {.timeout = 60s}, {1});
    expect_all_blame_rank_1(reports, 2);
}

}  // namespace
