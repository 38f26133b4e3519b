// Whatever else a group is used for, and whatever exceptions end a backward: gradients are
// PyTorch's, or every rank hears of it.
#include <ddp/distributed_data_parallel.hpp>

#include "support/gradients.hpp"
#include "support/toy_net.hpp"

#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/host_backends.hpp"

namespace {

using ddp::testing::host_backends;
using namespace ddp;
using ddp::testing::gradient_is;
using ddp::testing::mark_with;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;
using ddp::testing::usage_error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Matches;

using Indices = std::vector<std::size_t>;

// The body on that many ranks, for each backend of a host.
void run_everywhere(int ranks, const std::function<void(ProcessGroup&)>& body,
                    const CallSite& where = CallSite::here()) {
    for (const InitOptions& init : host_backends()) run_ranks(ranks, body, {.init = init}, where);
}

TEST(OrderOfCalls, IsOneForTwoReducersThatFindUnusedParameters) {
    run_everywhere(2, [](ProcessGroup& group) {
        ToyNet one({40});
        ToyNet other({40});
        Reducer first(one.parameters(), group, {.find_unused_parameters = true});
        Reducer second(other.parameters(), group);
        for (int step = 0; step < 20; ++step) {
            one.zero_grad();
            other.zero_grad();
            const bool unused = group.rank() == 1;
            first.start_backward(unused ? Indices{0} : Indices{});
            second.start_backward();
            if (!unused) mark_with(one, first, {0}, 2);
            mark_with(other, second, {0}, 100);
            EXPECT_TRUE(first.wait());
            EXPECT_TRUE(second.wait());
            EXPECT_TRUE(gradient_is(one.parameters(), 0, 1));
            EXPECT_TRUE(gradient_is(other.parameters(), 0, 100));
        }
    });
}

TEST(OrderOfCalls, IsOneForACollectiveAmidABackward) {
    run_everywhere(2, [](ProcessGroup& group) {
        ToyNet net({40, 40, 40});
        Reducer reducer(
            net.parameters(), group,
            {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .find_unused_parameters = true});
        for (int step = 0; step < 20; ++step) {
            net.zero_grad();
            reducer.start_backward(group.rank() == 1 ? Indices{2} : Indices{});
            if (group.rank() == 0) mark_with(net, reducer, {2}, 2);
            std::vector<float> statistics(40, static_cast<float>(group.rank() + 1));
            group.all_reduce(statistics).wait();  // as of a synchronised batch norm
            EXPECT_EQ(statistics.front(), 3);
            mark_with(net, reducer, {1, 0}, 4);
            EXPECT_TRUE(reducer.wait());
            EXPECT_TRUE(gradient_is(net.parameters(), 2, 1));
            EXPECT_TRUE(gradient_is(net.parameters(), 1, 4));
        }
    });
}

// Two Reducers that leave out the first parameters of their order, of which each is a bucket, on
// rank 1 alone; both have started before the first gradient comes.
void expect_averages_of_two_started_together(const std::vector<std::int64_t>& sizes,
                                             bool second_comes_first) {
    run_everywhere(2, [&](ProcessGroup& group) {
        ToyNet one(sizes);
        ToyNet other(sizes);
        const ReducerOptions options{
            .bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .find_unused_parameters = true};
        Reducer first(one.parameters(), group, options);
        Reducer second(other.parameters(), group, options);
        const std::size_t last = sizes.size() - 1;
        for (int step = 0; step < 20; ++step) {
            one.zero_grad();
            other.zero_grad();
            const Indices unused = group.rank() == 1 ? Indices{last} : Indices{};
            first.start_backward(unused);
            second.start_backward(unused);
            const auto mark = [&](ToyNet& net, Reducer& reducer, float amount) {
                for (std::size_t left = sizes.size() - unused.size(); left > 0; --left) {
                    mark_with(net, reducer, {left - 1}, amount);
                }
            };
            if (second_comes_first) mark(other, second, 100);
            mark(one, first, 2);
            if (!second_comes_first) mark(other, second, 100);
            EXPECT_TRUE(first.wait());
            EXPECT_TRUE(second.wait());
            EXPECT_TRUE(gradient_is(one.parameters(), last, 1));
            EXPECT_TRUE(gradient_is(other.parameters(), last, 50));
            EXPECT_TRUE(last == 0 || gradient_is(other.parameters(), 0, 100));
        }
    });
}

TEST(OrderOfCalls, IsOneForTwoReducersThatAreStartedTogether) {
    expect_averages_of_two_started_together({40}, false);
    for (const bool second_comes_first : {false, true}) {
        expect_averages_of_two_started_together({40, 40, 40}, second_comes_first);
    }
}

TEST(OrderOfCalls, IsOneForAReducerOfAStaticGraphThatThisRankDoesNotUse) {
    run_everywhere(2, [](ProcessGroup& group) {
        ToyNet one({40});
        ToyNet other({40});
        Reducer first(one.parameters(), group, {.static_graph = true});
        Reducer second(other.parameters(), group, {.find_unused_parameters = true});
        for (int step = 0; step < 5; ++step) {
            one.zero_grad();
            other.zero_grad();
            first.start_backward();
            second.start_backward();
            if (group.rank() == 0) mark_with(one, first, {0}, 2);
            if (step > 0) mark_with(other, second, {0}, 100);  // the first step sends in wait()
            EXPECT_TRUE(first.wait());
            if (step == 0) mark_with(other, second, {0}, 100);
            EXPECT_TRUE(second.wait());
            EXPECT_TRUE(gradient_is(one.parameters(), 0, 1));
            EXPECT_TRUE(gradient_is(other.parameters(), 0, 100));
        }
    });
}

TEST(OrderOfCalls, IsCheckedBetweenReducers) {
    run_everywhere(2, [](ProcessGroup& group) {
        ToyNet one({40});
        ToyNet other({40});
        Reducer first(one.parameters(), group);
        Reducer second(other.parameters(), group);
        const auto swapped = [&] {
            ToyNet& mine = group.rank() == 0 ? one : other;
            ToyNet& then = group.rank() == 0 ? other : one;
            Reducer& early = group.rank() == 0 ? first : second;
            Reducer& late = group.rank() == 0 ? second : first;
            mark_with(mine, early, {0}, 1);
            mark_with(then, late, {0}, 1);
            static_cast<void>(early.wait());
        };
        EXPECT_THAT(usage_error_of(swapped), AllOf(HasSubstr("bucket 0 of backward 1 of reducer 1"),
                                                   HasSubstr("bucket 0 of backward 1 of reducer 2"),
                                                   HasSubstr("in the same order")));
    });
}

TEST(OrderOfCalls, IsCheckedBetweenBucketsAndTheProgramsOwn) {
    run_everywhere(3, [](ProcessGroup& group) {
        ToyNet net({40});
        Reducer reducer(net.parameters(), group);
        std::vector<float> metric(40, 1);
        const auto step = [&] {
            Work work;
            const auto measure = [&] { work = group.all_reduce(metric, ReduceOp::avg); };
            if (group.rank() != 2) std::thread(measure).join();
            mark_with(net, reducer, {0}, 1);
            if (group.rank() == 2) measure();
            static_cast<void>(reducer.wait());
            work.wait();
        };
        EXPECT_THAT(usage_error_of(step), AllOf(HasSubstr("called all_reduce of 40 float32 (avg),"),
                                                HasSubstr("bucket 0 of backward 1 of reducer 1")));
    });
}

// A line of the library would tell nobody anything: its calls name themselves.
TEST(OrderOfCalls, IsCheckedWithoutNamingALineOfTheLibrary) {
    using Use = std::function<void(ToyNet&, Reducer&)>;
    const std::vector<Use> uses{nullptr,  // no more than to make it
                                [](ToyNet& net, Reducer& reducer) {
                                    mark_with(net, reducer, {0}, 1);
                                    static_cast<void>(reducer.wait());
                                },
                                [](ToyNet&, Reducer& reducer) { reducer.check_batches(3); }};
    for (const Use& use : uses) {
        run_everywhere(2, [&](ProcessGroup& group) {
            ToyNet net({40});
            std::vector<float> metric(41);
            const std::string error = usage_error_of([&] {
                std::optional<Reducer> reducer;
                if (use || group.rank() == 0) reducer.emplace(net.parameters(), group);
                if (use && group.rank() == 0) use(net, *reducer);
                if (group.rank() == 1) group.all_reduce(metric).wait();
            });
            EXPECT_THAT(error, HasSubstr("differs between ranks"));
            EXPECT_EQ(Matches(HasSubstr("pp:"))(error), group.rank() == 1) << error;
            const auto own_line = HasSubstr("(this rank's call: order_test.cpp:");
            EXPECT_EQ(Matches(own_line)(error), group.rank() == 1) << error;
        });
    }
}

// What the call throws of ddp's.
std::string error_of(const auto& call) {
    try {
        call();
        return "no error";
    } catch (const Error& error) {
        return error.what();
    }
}

// A backward ends by an exception, and the trainer goes on with the next batch.
struct Abandoned {
    bool on_all;  // ranks, or on rank 0 alone
    bool marked;  // a gradient had come
    bool under_no_sync;
    bool waits;  // calls wait() after it
};

// What a step of every rank sees: the gradients are averages, or an error.
std::string step_after(const Abandoned& how, ProcessGroup& group) {
    ToyNet net({40, 40});
    Reducer reducer(net.parameters(), group);
    const auto abandon = [&] {
        reducer.start_backward();
        if (how.marked) mark_with(net, reducer, {1}, 0);
        throw std::runtime_error("a bad record");
    };
    if (how.on_all || group.rank() == 0) {
        try {
            if (how.under_no_sync) {
                const auto guard = reducer.no_sync();
                abandon();
            } else {
                abandon();
            }
        } catch (const std::runtime_error&) {
            if (how.waits) {
                const std::string error =
                    usage_error_of([&] { static_cast<void>(reducer.wait()); });
                if (error != "no error") return error;
            }
        }
    }
    const auto own = static_cast<float>(2 * group.rank());
    return usage_error_of([&] {
        reducer.start_backward();
        mark_with(net, reducer, {1, 0}, own);
        EXPECT_TRUE(reducer.wait());
        EXPECT_TRUE(gradient_is(net.parameters(), 0, 1));
        EXPECT_TRUE(gradient_is(net.parameters(), 1, 1));
    });
}

TEST(AbandonedBackward, OfAllRanksBeforeItsFirstGradientIsForgotten) {
    for (const bool under_no_sync : {false, true}) {
        run_everywhere(2, [=](ProcessGroup& group) {
            EXPECT_EQ(step_after({true, false, under_no_sync, false}, group), "no error");
        });
    }
}

TEST(AbandonedBackward, UnderNoSyncIsForgottenAlsoInTheMiddleAndOnOneRank) {
    for (const bool on_all : {false, true}) {
        run_everywhere(2, [=](ProcessGroup& group) {
            EXPECT_EQ(step_after({on_all, true, true, false}, group), "no error");
        });
    }
}

TEST(AbandonedBackward, UnderNoSyncOfOneRankBeforeItsFirstGradientIsForgotten) {
    run_everywhere(2, [](ProcessGroup& group) {
        EXPECT_EQ(step_after({false, false, true, false}, group), "no error");
    });
}

// By then no_sync has ended: it is the wait() of a backward that sends and has no gradients.
TEST(AbandonedBackward, UnderNoSyncOfOneRankIsAnErrorOnAllWithAWaitThatIsNot) {
    run_everywhere(2, [](ProcessGroup& group) {
        EXPECT_THAT(step_after({false, false, true, true}, group),
                    HasSubstr("on rank 0, backward ended without a gradient for layer0, layer1"));
    });
}

TEST(AbandonedBackward, OfOneRankBeforeItsFirstGradientIsAnErrorOnAll) {
    run_everywhere(2, [](ProcessGroup& group) {
        EXPECT_THAT(step_after({false, false, false, false}, group),
                    AllOf(HasSubstr("of backward 1 of reducer 1"),
                          HasSubstr("of backward 2 of reducer 1")));
    });
}

TEST(AbandonedBackward, InTheMiddleIsRefused) {
    run_everywhere(2, [](ProcessGroup& group) {
        EXPECT_THAT(step_after({true, true, false, false}, group),
                    HasSubstr("in the middle of a backward"));
    });
}

// The rank that threw is refused another backward; the others lose it, or wait for it in vain.
TEST(AbandonedBackward, OfOneRankInTheMiddleIsAnErrorOnAll) {
    run_everywhere(2, [](ProcessGroup& group) {
        const auto step = [&] { return step_after({false, true, false, false}, group); };
        if (group.rank() == 0) {
            EXPECT_THAT(step(), HasSubstr("in the middle of a backward"));
        } else {
            EXPECT_THAT(error_of(step), HasSubstr("rank 0"));
        }
    });
}

TEST(AbandonedBackward, InTheMiddleIsToldToAllByWait) {
    for (const bool on_all : {false, true}) {
        run_everywhere(2, [=](ProcessGroup& group) {
            EXPECT_THAT(step_after({on_all, true, false, true}, group),
                        HasSubstr("backward ended without a gradient for layer0"));
        });
    }
}

TEST(AbandonedBackward, ChangesItsMindAboutUnusedParameters) {
    run_everywhere(2, [](ProcessGroup& group) {
        ToyNet net({40, 40});
        // Also of a bucket that could have been sent already.
        Reducer reducer(
            net.parameters(), group,
            {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .find_unused_parameters = true});
        for (const Indices& first : {Indices{}, Indices{0}, Indices{1}, Indices{0, 1}}) {
            net.zero_grad();
            reducer.start_backward(first);
            reducer.start_backward(Indices{1});
            mark_with(net, reducer, {0}, static_cast<float>(2 * group.rank()));
            EXPECT_TRUE(reducer.wait());
            EXPECT_TRUE(gradient_is(net.parameters(), 0, 1));
            EXPECT_FALSE(reducer.was_averaged(1)) << "used by the abandoned one";
        }
    });
}

// The net's hook marks; the wrapper starts.
TEST(AbandonedBackward, OfAWrappedNetUnderNoSyncIsNotTakenForTheNext) {
    run_everywhere(2, [](ProcessGroup& group) {
        ToyNet net({40});
        DistributedDataParallel model(net, group);
        for (int step = 0; step < 3; ++step) {
            net.zero_grad();
            {
                const auto guard = model.no_sync();
                model.reducer().start_backward();  // and its backward throws
            }
            EXPECT_TRUE(model.backward(static_cast<float>(2 * group.rank())));
            EXPECT_TRUE(net.gradients_are(1)) << "step " << step;
        }
    });
}

// Its backward throws when so many gradients have come.
class FailingNet : public ToyNet {
public:
    using ToyNet::ToyNet;
    static constexpr int never = 1'000;
    int gradients_left = never;

    void on_gradient_ready(GradientReady hook) {
        if (!hook) return ToyNet::on_gradient_ready({});
        ToyNet::on_gradient_ready([this, hook](std::size_t parameter, Stream stream) {
            if (gradients_left-- == 0) throw std::runtime_error("a bad record");
            hook(parameter, stream);
        });
    }
};

// What a step sees after one whose backward threw within the wrapper's.
std::string step_after_a_wrapped(const Abandoned& how, ProcessGroup& group) {
    FailingNet net({40, 40});
    DistributedDataParallel model(net, group);
    const auto own = static_cast<float>(2 * group.rank());
    if (how.on_all || group.rank() == 0) {
        net.gradients_left = how.marked ? 1 : 0;
        const auto fail = [&] { static_cast<void>(model.backward(own)); };
        if (how.under_no_sync) {
            const auto guard = model.no_sync();
            EXPECT_THROW(fail(), std::runtime_error);
        } else {
            EXPECT_THROW(fail(), std::runtime_error);
        }
        net.gradients_left = FailingNet::never;
    }
    net.zero_grad();
    return error_of([&] {
        EXPECT_TRUE(model.backward(own));
        EXPECT_TRUE(net.gradients_are(1));
    });
}

TEST(AbandonedBackward, WithinAWrappersIsForgottenUnderNoSyncAndOnAllRanksBeforeItsGradients) {
    for (const bool on_all : {false, true}) {
        for (const bool marked : {false, true}) {
            run_everywhere(2, [=](ProcessGroup& group) {
                EXPECT_EQ(step_after_a_wrapped({on_all, marked, true, false}, group), "no error");
            });
        }
    }
    run_everywhere(2, [](ProcessGroup& group) {
        EXPECT_EQ(step_after_a_wrapped({true, false, false, false}, group), "no error");
    });
}

TEST(AbandonedBackward, WithinAWrappersIsAnErrorOnAllOtherwise) {
    run_everywhere(2, [](ProcessGroup& group) {
        EXPECT_THAT(step_after_a_wrapped({true, true, false, false}, group),
                    HasSubstr("in the middle of a backward"));
    });
    run_everywhere(2, [](ProcessGroup& group) {
        EXPECT_THAT(step_after_a_wrapped({false, false, false, false}, group),
                    HasSubstr("of backward 2 of reducer 1"));
    });
    run_everywhere(2, [](ProcessGroup& group) {
        EXPECT_THAT(step_after_a_wrapped({false, true, false, false}, group),
                    HasSubstr(group.rank() == 0 ? "in the middle of a backward" : "rank 0"));
    });
}

TEST(AbandonedBackward, ThatMarksWithoutAStartIsNotTakenForTheNextEither) {
    run_everywhere(2, [](ProcessGroup& group) {
        ToyNet net({40, 40});
        Reducer reducer(net.parameters(), group);
        {
            const auto guard = reducer.no_sync();
            mark_with(net, reducer, {1}, 0);
        }
        mark_with(net, reducer, {1, 0}, static_cast<float>(2 * group.rank()));
        EXPECT_TRUE(reducer.wait());
        EXPECT_TRUE(gradient_is(net.parameters(), 0, 1));
    });
}

}  // namespace
