// When the NCCL backend's watchdog ends a group because of another rank's trouble, and when it lets
// the group go on: on made-up trouble, over the stand-in for the CUDA runtime.
#include "backends/nccl/nccl_watchdog.hpp"
#include "standin_cuda/cards.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::nccl;
using Finder = Watchdog::Finder;

constexpr auto long_enough = 20s;

standin_cuda::Cards& cards() { return standin_cuda::lasting_cards(1); }

std::exception_ptr error_with(const std::string& text) {
    return std::make_exception_ptr(PeerError(1, text));
}

// A group of which only the watchdog is there. Its operations are done as soon as they have been
// launched, as the stream has nothing to do.
class WatchedGroup {
public:
    using Probe = std::function<std::exception_ptr(const std::string& during)>;

    explicit WatchedGroup(
        Probe find_trouble,
        Probe find_async_error = [](const std::string&) { return std::exception_ptr(); }) {
        cards().use(0);
        stream_ = cards().make_stream(device::Priority::normal);
        events_ = std::make_shared<EventPool>(cards(), 0);
        watchdog_.emplace(
            Watchdog::Probes{.find_trouble = std::move(find_trouble),
                             .find_async_error = std::move(find_async_error),
                             .name = "rank 0",
                             .use_device = [] { cards().use(0); }},
            [this](std::exception_ptr error, Finder finder) { end(std::move(error), finder); });
    }
    ~WatchedGroup() {
        watchdog_->abort_all();
        watchdog_->stop();
        cards().destroy_stream(stream_);
    }
    WatchedGroup(const WatchedGroup&) = delete;
    WatchedGroup& operator=(const WatchedGroup&) = delete;

    std::shared_ptr<InFlightOperation> start(const std::string& what,
                                             std::chrono::milliseconds timeout = long_enough) {
        auto operation = std::make_shared<InFlightOperation>(
            events_, group_abort_, OperationInfo(what), base::Deadline::after(timeout),
            InFlightOperation::Place::on_stream);
        watchdog_->watch(operation);
        return operation;
    }
    void finish(InFlightOperation& operation) {
        cards().use(0);
        operation.record_end(Stream(stream_));
    }
    void wait_until_completed() { watchdog_->wait_until_completed(); }

    bool has_ended() const { return group_abort_->is_set(); }
    // "other rank: <text>", or of this rank, once the group has ended.
    std::string end_of_group() const {
        group_abort_->wait_until_aborted();
        const char* const finder = finder_ == Finder::other_rank ? "other rank: " : "this rank: ";
        try {
            group_abort_->raise();
        } catch (const std::exception& error) {
            return std::string(finder) + error.what();
        }
    }

private:
    void end(std::exception_ptr error, Finder finder) {
        finder_ = finder;
        group_abort_->set(std::move(error));
        watchdog_->abort_all();
        group_abort_->mark_aborted();
    }

    CUstream_st* stream_ = nullptr;
    std::shared_ptr<EventPool> events_;
    std::shared_ptr<GroupAbort> group_abort_ = std::make_shared<GroupAbort>();
    std::atomic<Finder> finder_ = Finder::this_rank;
    std::optional<Watchdog> watchdog_;
};

// A rank has done its part and left: what is in flight ends at the first look after it.
TEST(NcclWatchdog, LetsAnOperationEndToWhichALeaverHasDoneItsPart) {
    std::shared_ptr<InFlightOperation> operation;
    std::atomic<bool> started = false;
    WatchedGroup* watched = nullptr;
    WatchedGroup group([&](const std::string&) -> std::exception_ptr {
        if (!started || operation->is_launched()) return nullptr;
        watched->finish(*operation);
        return error_with("rank 1 has left");
    });
    watched = &group;
    operation = group.start("the last operation");
    started = true;
    group.wait_until_completed();
    EXPECT_EQ(operation->state(), InFlightOperation::State::completed);
    EXPECT_FALSE(group.has_ended());
}

// The ranks that go after the first go because of it.
TEST(NcclWatchdog, EndsTheGroupWithTheFirstTroubleThatLasts) {
    std::atomic<int> looks = 0;
    WatchedGroup group([&](const std::string& during) {
        return error_with("trouble " + std::to_string(++looks) + " during " + during);
    });
    const auto operation = group.start("an operation");
    EXPECT_EQ(group.end_of_group(), "other rank: trouble 1 during an operation");
    EXPECT_GT(looks, 1) << "without a grace";
    EXPECT_EQ(operation->state(), InFlightOperation::State::aborted);
}

// An operation that ends nevertheless is not the one that the peer missed.
TEST(NcclWatchdog, NamesTheOperationThatTheRankWhichIsGoneMissed) {
    std::shared_ptr<InFlightOperation> first;
    std::atomic<bool> started = false;
    WatchedGroup* watched = nullptr;
    WatchedGroup group([&](const std::string& during) -> std::exception_ptr {
        if (!started) return nullptr;
        if (!first->is_launched()) watched->finish(*first);
        return error_with("gone during " + during);
    });
    watched = &group;
    first = group.start("the first");
    const auto second = group.start("the second");
    started = true;
    EXPECT_EQ(group.end_of_group(), "other rank: gone during the second");
    EXPECT_EQ(first->state(), InFlightOperation::State::completed);
    EXPECT_EQ(second->state(), InFlightOperation::State::aborted);
}

// Of a peer's death NCCL sees a closed connection, often before the CPU half sees who it was.
TEST(NcclWatchdog, PrefersToSayWhoIsGoneOverWhatNcclSees) {
    std::atomic<int> looks = 0;
    WatchedGroup group(
        [&](const std::string&) { return ++looks < 3 ? nullptr : error_with("rank 1 died"); },
        [](const std::string&) { return std::make_exception_ptr(BackendError("nccl", 6, "x")); });
    const auto operation = group.start("an operation");
    EXPECT_EQ(group.end_of_group(), "other rank: rank 1 died");
}

TEST(NcclWatchdog, EndsTheGroupWithAnErrorOfNcclWithoutTrouble) {
    WatchedGroup group(
        [](const std::string&) { return std::exception_ptr(); },
        [](const std::string& during) {
            return std::make_exception_ptr(BackendError("nccl", 6, "an error during " + during));
        });
    const auto operation = group.start("an operation");
    EXPECT_EQ(group.end_of_group(), "this rank: nccl: an error during an operation");
}

// Trouble that goes away leaves no part of its grace to the next.
TEST(NcclWatchdog, CountsTheGraceAnewAfterTroubleThatWentAway) {
    std::atomic<int> looks = 0;
    std::atomic<std::chrono::steady_clock::rep> again{0};
    WatchedGroup group([&](const std::string&) -> std::exception_ptr {
        const int look = ++looks;
        if (look > 1 && look < 9) return nullptr;
        if (look == 9) again = std::chrono::steady_clock::now().time_since_epoch().count();
        return error_with("trouble " + std::to_string(look));
    });
    const auto operation = group.start("an operation");
    EXPECT_EQ(group.end_of_group(), "other rank: trouble 9");
    const std::chrono::steady_clock::duration since(
        std::chrono::steady_clock::now().time_since_epoch().count() - again);
    EXPECT_GE(since, peer_grace);
}

TEST(NcclWatchdog, EndsTheGroupWhenAnOperationIsLate) {
    WatchedGroup group([](const std::string&) { return std::exception_ptr(); });
    const auto in_time = group.start("the first");
    const auto late = group.start("the second", 50ms);
    EXPECT_EQ(
        group.end_of_group(),
        "this rank: nccl: the second was not launched within 50 ms on rank 0; is another rank "
        "stopped, or at another operation?");
}

}  // namespace
