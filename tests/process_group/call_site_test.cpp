// An error that ends a collective names the line where this rank started it: each rank its own, and
// none where the library did.
#include "backends/gloo/make_gloo.hpp"
#include "process_group/launchers_region.hpp"
#include "process_group/worlds.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>

#include <signal.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// What the collectives of the table below work on.
struct Buffers {
    explicit Buffers(const ProcessGroup& group)
        : part(5),
          whole(5 * static_cast<std::size_t>(group.size())),
          other(whole),
          list{part, other},
          fives(static_cast<std::size_t>(group.size()), 5),
          sizes{fives, fives} {}

    std::vector<float> part, whole, other;
    std::vector<TensorView> list;
    std::vector<std::size_t> fives;
    SplitSizes sizes;
};

// A collective and the line on which it starts.
struct Start {
    CallSite site;
    std::function<void(ProcessGroup&, Buffers&)> call;
};

constexpr ReduceOp avg = ReduceOp::avg;
constexpr std::array<int, 2> pair{0, 1};

// No two fit each other.
const std::vector<Start> starts{
    {CallSite::here(), [](auto& g, auto& b) { g.all_reduce(b.part).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.all_reduce(b.whole, b.other, avg).wait(); }},
    {CallSite::here(), [](auto& g, auto&) { static_cast<void>(g.all_reduce(1.5)); }},
    {CallSite::here(), [](auto& g, auto&) { static_cast<void>(g.all_reduce(1, ReduceOp::max)); }},
    {CallSite::here(), [](auto& g, auto& b) { g.all_reduce_coalesced(b.list).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.broadcast(b.part).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.broadcast_coalesced(b.list).wait(); }},
    {CallSite::here(), [](auto& g, auto&) { g.barrier().wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.reduce(b.part, b.part).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.all_gather(b.part, b.whole).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.all_gather(b.part, b.whole, b.fives).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.gather(b.part, b.whole).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.scatter(b.whole, b.part).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.reduce_scatter(b.whole, b.part).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.all_to_all(b.whole, b.other).wait(); }},
    {CallSite::here(), [](auto& g, auto& b) { g.all_to_all(b.whole, b.other, b.sizes).wait(); }},
    {CallSite::here(), [](auto& g, auto&) { static_cast<void>(g.allocate({64}, DType::int8)); }},
    {CallSite::here(), [](auto& g, auto&) { static_cast<void>(g.split({})); }},
    {CallSite::here(), [](auto& g, auto&) { static_cast<void>(g.new_group(pair)); }},
};
const Start& start_barrier = starts[7];

std::string error_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

void expect_line_in(const std::string& error, const CallSite& site) {
    EXPECT_THAT(
        error,
        EndsWith(" (this rank's call: call_site_test.cpp:" + std::to_string(site.line()) + ")"));
    EXPECT_EQ(error.find(".cpp:"), error.rfind(".cpp:")) << "of others: " << error;
    EXPECT_THAT(error, Not(HasSubstr("\n")));
}

void expect_own_line(ProcessGroup& group, const Start& start) {
    Buffers buffers(group);
    const std::string error = error_of([&] {
        start.call(group, buffers);
        // Who only gives may be done before the others have come; that they called something else
        // shows at its next call.
        group.barrier().wait();
    });
    expect_line_in(error, start.site);
    EXPECT_EQ(error_of([&] { group.barrier().wait(); }), error) << "it is the group's";
}

std::vector<Backend> host_backends() {
    std::vector<Backend> all{Backend::shm};
    if (!gloo::refusal_of_build().empty()) return all;
    all.push_back(Backend::gloo);
    all.push_back(Backend::hierarchical);
    return all;
}

RunRanksOptions options_of(Backend backend, int ranks, const std::vector<int>& may_die = {}) {
    const bool on_hosts = backend == Backend::hierarchical;
    return {.may_die = may_die,
            .init = {.backend = backend},
            .hosts = on_hosts ? std::vector{1, ranks - 1} : std::vector<int>{}};
}

void run_everywhere(int ranks, const std::function<void(ProcessGroup&)>& body) {
    for (const Backend backend : host_backends()) {
        SCOPED_TRACE(to_string(backend));
        run_ranks(ranks, body, options_of(backend, ranks));
    }
}

TEST(CallSite, IsNamedByEachRankWhereCollectivesDiffer) {
    for (std::size_t i = 0; i < starts.size(); ++i) {
        const Start& of_all = starts[i];
        const Start& of_the_last = starts[(i + 1) % starts.size()];
        run_everywhere(3, [&](ProcessGroup& group) {
            expect_own_line(group, group.rank() < 2 ? of_all : of_the_last);
        });
    }
}

// More than a sender can leave behind without its receiver.
TEST(CallSite, IsNamedByBothRanksWhereTransfersDiffer) {
    std::vector<float> all(3'000'000);
    const Start send{CallSite::here(), [&](auto& g, auto&) { g.send(all, Peer{1}).wait(); }};
    const Start recv{CallSite::here(), [](auto& g, auto& b) { g.recv(b.part, Peer{0}).wait(); }};
    const std::vector<P2POp> list{{P2POp::send, all, Peer{1}}};
    const Start batch{CallSite::here(), [&](auto& g, auto&) { g.batch_send_recv(list).wait(); }};
    for (const Start* sender : {&send, &batch}) {
        run_everywhere(2, [&](ProcessGroup& group) {
            const Start& own = group.rank() == 0 ? *sender : recv;
            Buffers buffers(group);
            expect_line_in(error_of([&] { own.call(group, buffers); }), own.site);
        });
    }
}

TEST(CallSite, IsNamedWhereAPeerDies) {
    const auto body = [](RankReporter&, const std::function<ProcessGroup()>& join) {
        const contract::ControlRegion region = launchers_region();
        ProcessGroup group = join();
        kill_when_all_are_here(region, group, 1);  // and have left init
        expect_own_line(group, start_barrier);
        EXPECT_THROW(group.barrier().wait(), PeerError);
    };
    for (const Backend backend : host_backends()) {
        SCOPED_TRACE(to_string(backend));
        run_joining_ranks(3, body, options_of(backend, 3, {1}));
    }
}

TEST(CallSite, IsNamedWhereAPeerDoesNotCome) {
    run_everywhere(2, [](ProcessGroup& patient) {
        ProcessGroup group = init_process_group({.backend = patient.backend(), .timeout = 300ms});
        if (group.rank() == 0) {
            expect_own_line(group, start_barrier);
            EXPECT_THROW(group.barrier().wait(), TimeoutError);
        }
        patient.barrier().wait();
    });
}

TEST(CallSite, IsWhatAFunctionPassesOn) {
    const auto average = [](ProcessGroup& group, double value, const CallSite& site) {
        return group.all_reduce(value, ReduceOp::avg, site);
    };
    const Start start{CallSite::here(), [&](auto& g, auto&) { average(g, 1, CallSite::here()); }};
    run_everywhere(2, [&](ProcessGroup& group) {
        expect_own_line(group, group.rank() == 0 ? start : start_barrier);
    });
}

TEST(CallSite, IsLeftOutWhereThereIsNone) {
    run_everywhere(2, [](ProcessGroup& group) {
        const std::string error = error_of([&] {
            if (group.rank() == 0) group.barrier(CallSite{}).wait();
            static_cast<void>(group.all_reduce(1, ReduceOp::sum, CallSite{}));
        });
        EXPECT_THAT(error, HasSubstr("differs between ranks"));
        EXPECT_THAT(error, Not(HasSubstr("this rank's call")));
    });
}

}  // namespace
