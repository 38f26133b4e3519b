// What is gathered of attempts, and the texts that are made of it: the page's object is read here as
// its script does.
#include "launcher/timeline/job_timeline.hpp"

#include "contract/operation_recorder.hpp"
#include "launcher/sleeping_worker.hpp"
#include "launcher/timeline/page_object.hpp"
#include "launcher/timeline/report_page.hpp"
#include "launcher/timeline/trace_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using contract::Activity;
using contract::Timeline;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using testing::object_of;
using ::testing::SizeIs;

class JobOfTwo : public ::testing::Test {
protected:
    static constexpr std::size_t entries = 8;

    JobOfTwo() {
        for (int rank = 0; rank < 2; ++rank) {
            workers_.push_back(testing::start_sleeping_worker(rank));
        }
    }
    ~JobOfTwo() override { end_workers(); }

    void end_workers() {
        for (Worker& worker : workers_) {
            if (!worker.ended) testing::end_worker(worker);
        }
    }
    // From now on.
    void add(int rank, Activity what, std::uint64_t number = 1, std::uint32_t group = 0) {
        const std::int64_t now = Timeline::now_ns();
        pages_.timeline(rank).add({.what = what,
                                   .started_ns = now,
                                   .ended_ns = Timeline::now_ns(),
                                   .number = number,
                                   .group = group,
                                   .call = {.kind = contract::Collective::all_reduce,
                                            .dtype = DType::float32,
                                            .elements = 4}});
    }
    void note(JobTimeline& timeline, int attempt = 0, const std::string& text = "") {
        end_workers();
        timeline.note(attempt, pages_, workers_, 10, text);
    }

    contract::ControlRegion pages_ = contract::ControlRegion::create(2, entries);
    std::vector<Worker> workers_;
};

TEST_F(JobOfTwo, HasWhatEachRankDidByItsBeginning) {
    pages_.page(1).pid = 4711;
    add(1, Activity::step, 3);
    add(1, Activity::collective, 1, 77);
    add(1, Activity::collective, 2, 77);
    JobTimeline timeline;
    note(timeline);
    ASSERT_THAT(timeline.attempts(), SizeIs(1));
    const auto& ranks = timeline.attempts()[0].ranks;
    ASSERT_THAT(ranks, SizeIs(2));
    EXPECT_EQ(ranks[0].rank, 10);
    EXPECT_FALSE(ranks[0].has_joined);
    EXPECT_THAT(ranks[0].items, IsEmpty());
    EXPECT_TRUE(ranks[1].has_joined);
    EXPECT_EQ(ranks[1].end, "SIGKILL (signal 9)");
    ASSERT_THAT(ranks[1].items, SizeIs(3));
    EXPECT_LE(ranks[1].started, ranks[1].items[0].started);
    EXPECT_LE(ranks[1].items[0].started, ranks[1].items[1].started);
    EXPECT_LE(ranks[1].items[2].ended, ranks[1].ended);
    EXPECT_EQ(ranks[1].items[1].name, ranks[1].items[2].name);
    EXPECT_THAT(timeline.names(), ElementsAre("step", "all_reduce of 4 float32 (sum)"));
    EXPECT_THAT(timeline.groups(), ElementsAre(::testing::Field(&TimelineGroup::id, 77U)));
    EXPECT_EQ(timeline.began(), ranks[0].started);
}

TEST_F(JobOfTwo, LeavesOutWhatIsNotOfTheTimeOfTheRank) {
    const std::int64_t now = Timeline::now_ns();
    for (const auto& [from, to] : {std::pair{std::int64_t{1}, now},
                                   {now, now + 1'000'000'000'000},
                                   {std::int64_t{0}, std::int64_t{0}}}) {
        pages_.timeline(0).add({.started_ns = from, .ended_ns = to});
    }
    JobTimeline timeline;
    note(timeline);
    EXPECT_THAT(timeline.attempts()[0].ranks[0].items, IsEmpty());
}

TEST_F(JobOfTwo, SaysHowManyAreLost) {
    for (std::size_t i = 0; i < entries + 5; ++i) add(0, Activity::step, i);
    JobTimeline timeline;
    note(timeline);
    EXPECT_THAT(timeline.attempts()[0].ranks[0].items, SizeIs(entries));
    EXPECT_EQ(timeline.attempts()[0].ranks[0].lost, 5U);
}

TEST_F(JobOfTwo, KeepsTheLastAttemptsWhereTheyAreTooMany) {
    add(0, Activity::step);
    add(0, Activity::step);
    JobTimeline timeline(5);
    for (int attempt = 0; attempt < 4; ++attempt) note(timeline, attempt);
    const auto& attempts = timeline.attempts();
    ASSERT_THAT(attempts, SizeIs(4));
    EXPECT_THAT(attempts[1].ranks[0].items, IsEmpty());
    EXPECT_EQ(attempts[1].ranks[0].lost, 2U);
    EXPECT_THAT(attempts[2].ranks[0].items, SizeIs(2));
    EXPECT_THAT(attempts[3].ranks[0].items, SizeIs(2));
}

TEST_F(JobOfTwo, HasTheCallThatARankWasInUntilItsEnd) {
    contract::OperationRecorder recorder(pages_.page(0), 7, 2, pages_.timeline(0));
    recorder.started({}, {}, 1, Worker::Clock::now());
    recorder.ended();
    recorder.started({}, {}, 2, Worker::Clock::now());
    JobTimeline timeline;
    note(timeline);
    const RankTimeline& rank = timeline.attempts()[0].ranks[0];
    ASSERT_THAT(rank.items, SizeIs(2));
    EXPECT_EQ(rank.items[1].number, 2U);
    EXPECT_GE(rank.items[1].started, rank.items[0].ended);
    EXPECT_EQ(rank.items[1].ended, rank.ended);
    EXPECT_FALSE(rank.items[1].has_ended);
    EXPECT_EQ(timeline.names()[rank.items[1].name], "barrier");
    ASSERT_THAT(timeline.groups(), SizeIs(1));
    EXPECT_EQ(timeline.groups()[0].size, 2);
    EXPECT_FALSE(timeline.groups()[0].on_gpu);
    const json data = object_of(report_page(timeline, {}));
    EXPECT_EQ(data["groups"], json::parse(R"([{"size":2,"gpu":false}])"));
    EXPECT_EQ(data["attempts"][0]["ranks"][0]["what"], json::array({0, 8}));
    EXPECT_THAT(trace_text(timeline), HasSubstr(R"("cat":"collective, did not end")"));
}

// A program that has caught the error may go on for long.
TEST_F(JobOfTwo, EndsACallThatFailedThen) {
    contract::OperationRecorder recorder(pages_.page(0), 7, 2, pages_.timeline(0));
    recorder.started({}, {}, 1, Worker::Clock::now());
    recorder.failed();
    JobTimeline timeline;
    note(timeline);
    const RankTimeline& rank = timeline.attempts()[0].ranks[0];
    ASSERT_THAT(rank.items, SizeIs(1));
    EXPECT_FALSE(rank.items[0].has_ended);
    EXPECT_LT(rank.items[0].ended, rank.ended);
}

// As of a GPU's: a thread of a trace does one thing after the other.
TEST_F(JobOfTwo, ShowsWhatOverlapsInSeveralThreadsOfATrace) {
    const std::int64_t now = Timeline::now_ns();
    while (Timeline::now_ns() < now + 1000) {
    }
    for (const auto& [from, to] : {std::pair{0, 500}, {100, 600}, {550, 700}}) {
        pages_.timeline(0).add({.started_ns = now + from, .ended_ns = now + to, .group = 5});
    }
    JobTimeline timeline;
    note(timeline);
    std::vector<int> threads;
    const json trace = json::parse(trace_text(timeline));
    for (const json& event : trace["traceEvents"]) {
        if (event["ph"] == "X") threads.push_back(event["tid"]);
    }
    EXPECT_THAT(threads, ElementsAre(3000, 3001, 3000));
}

// Whatever a worker has written into its ring.
TEST_F(JobOfTwo, HasALimitedNumberOfNamesAndGroups) {
    contract::ControlRegion large = contract::ControlRegion::create(2, 2 * JobTimeline::most_names);
    for (std::uint64_t i = 0; i < 2 * JobTimeline::most_names; ++i) {
        const std::int64_t now = Timeline::now_ns();
        large.timeline(0).add({.started_ns = now,
                               .ended_ns = now,
                               .group = static_cast<std::uint32_t>(i) * 7919,
                               .call = {.kind = contract::Collective::all_reduce, .elements = i}});
    }
    end_workers();
    JobTimeline timeline;
    timeline.note(0, large, workers_, 0, "");
    EXPECT_THAT(timeline.names(), SizeIs(JobTimeline::most_names));
    EXPECT_EQ(timeline.names().back(), "one of many others");
    EXPECT_EQ(timeline.attempts()[0].ranks[0].items.back().name, JobTimeline::most_names - 1);
    EXPECT_THAT(timeline.groups(), SizeIs(JobTimeline::most_groups));
    EXPECT_EQ(timeline.groups().back().id, 0U) << "several";
}

TEST_F(JobOfTwo, IsWholeInThePage) {
    pages_.page(0).pid = 1;
    add(0, Activity::step, 5);
    add(0, Activity::collective, 9, 3);
    JobTimeline timeline;
    note(timeline, 0, "it failed");
    const json data =
        object_of(report_page(timeline, {.command = {"./train", "--x"}, .run_id = "r"}));
    EXPECT_EQ(data["format"], 1);
    EXPECT_EQ(data["command"], json::array({"./train", "--x"}));
    EXPECT_TRUE(data["report"].is_null());
    EXPECT_EQ(data["attempts"][0]["text"], "it failed");
    const json& rank = data["attempts"][0]["ranks"][0];
    EXPECT_EQ(rank["rank"], 10);
    EXPECT_EQ(rank["joined"], true);
    EXPECT_EQ(rank["what"], json::array({3, 0}));
    EXPECT_EQ(rank["number"], json::array({5, 9}));
    const RankTimeline& real = timeline.attempts()[0].ranks[0];
    std::int64_t at = rank["started"];
    for (std::size_t i = 0; i < 2; ++i) {
        at += rank["start"][i].get<std::int64_t>();
        EXPECT_EQ(at, (real.items[i].started - timeline.began()) / 100);
        EXPECT_EQ(data["names"][rank["name"][i].get<std::size_t>()],
                  timeline.names()[real.items[i].name]);
    }
    EXPECT_THAT(data["attempts"][0]["ranks"][1]["start"], IsEmpty());
}

// A page that shows output of a program must not run it.
TEST_F(JobOfTwo, IsDataInThePageWhateverStandsInIt) {
    const std::string bad = "</script><script>alert(1)</script><!--\xff\n";
    JobTimeline timeline;
    note(timeline, 0, bad);
    const std::string page = report_page(
        timeline,
        {.command = {bad}, .run_id = bad, .report_json = json{{"message", "<b>"}}.dump()});
    EXPECT_EQ(page.find("<script>alert"), page.npos);
    EXPECT_EQ(page.find("<b>"), page.npos);
    const json data = object_of(page);
    EXPECT_EQ(data["report"]["message"], "<b>");
    EXPECT_THAT(data["command"][0].get<std::string>(), HasSubstr("</script><script>alert(1)"));
}

TEST_F(JobOfTwo, IsATraceForPerfetto) {
    add(0, Activity::step, 5);
    add(1, Activity::collective, 9, 3);
    JobTimeline timeline;
    note(timeline, 0);
    note(timeline, 1);
    const json trace = json::parse(trace_text(timeline));
    std::map<std::string, std::vector<json>> by_phase;
    for (const json& event : trace["traceEvents"]) by_phase[event["ph"]].push_back(event);
    ASSERT_THAT(by_phase["X"], SizeIs(4));
    for (const json& event : by_phase["X"]) {
        EXPECT_THAT(event["ts"].get<double>(), AllOf(Ge(0), Le(60e6)));
        EXPECT_THAT(event["dur"].get<double>(), Ge(0));
    }
    EXPECT_EQ(by_phase["X"][0]["name"], "step");
    EXPECT_EQ(by_phase["X"][0]["args"]["number"], 5);
    EXPECT_EQ(by_phase["X"][1]["name"], "all_reduce of 4 float32 (sum)");
    std::vector<std::string> names;
    for (const json& event : by_phase["M"]) {
        if (event["args"].contains("name")) names.push_back(event["args"]["name"]);
    }
    EXPECT_THAT(names, AllOf(Contains(HasSubstr("rank 10 (pid ")),
                             Contains(HasSubstr("rank 11, attempt 2 (pid ")), Contains("steps"),
                             Contains("group 1")));
}

TEST(JobTimeline, GivesManyRanksLessEach) {
    EXPECT_EQ(JobTimeline::entries_for(1), JobTimeline::entries_for(8));
    EXPECT_EQ(JobTimeline::entries_for(8) * 8, JobTimeline::most_activities);
    EXPECT_EQ(JobTimeline::entries_for(64) * 64, JobTimeline::most_activities);
    EXPECT_GE(JobTimeline::entries_for(100'000), 1024U);
}

TEST(JobTimeline, OfNothingIsAPageToo) {
    const JobTimeline none;
    EXPECT_THAT(object_of(report_page(none, {}))["attempts"], IsEmpty());
    EXPECT_THAT(json::parse(trace_text(none))["traceEvents"], IsEmpty());
}

// As its host tells of it.
TEST_F(JobOfTwo, IsTheSameInParts) {
    for (std::uint64_t i = 1; i <= 5; ++i) {
        add(1, Activity::step, i);
        if (i % 2 == 0) add(1, Activity::collective, i, 77);
    }
    pages_.page(1).pid = 4711;
    JobTimeline here;
    note(here, 3);
    for (const std::size_t most : {std::size_t{1}, std::size_t{3}, std::size_t{100}}) {
        JobTimeline there;
        there.begin(3);
        std::vector<TimelinePart> parts = here.parts(most);
        EXPECT_EQ(parts.size(), most == 100 ? 2U : 1 + (7 + most - 1) / most);
        for (TimelinePart& part : parts) {
            EXPECT_THAT(part.rank.items, SizeIs(Le(most)));
            EXPECT_THAT(part.names, SizeIs(Le(most)));
            there.add(std::move(part));
        }
        there.set_text("it failed");
        ASSERT_THAT(there.attempts(), SizeIs(1));
        EXPECT_EQ(there.attempts()[0].text, "it failed");
        const RankTimeline& before = here.attempts()[0].ranks[1];
        const RankTimeline& after = there.attempts()[0].ranks[1];
        EXPECT_EQ(after.rank, 11);
        EXPECT_EQ(after.pid, before.pid);
        EXPECT_TRUE(after.has_joined);
        EXPECT_EQ(after.end, before.end);
        ASSERT_EQ(after.items.size(), before.items.size());
        for (std::size_t i = 0; i < after.items.size(); ++i) {
            EXPECT_EQ(after.items[i].started, before.items[i].started);
            EXPECT_EQ(after.items[i].number, before.items[i].number);
            EXPECT_EQ(there.names()[after.items[i].name], here.names()[before.items[i].name]);
            if (after.items[i].what != Activity::collective) continue;
            EXPECT_EQ(there.groups()[after.items[i].group].id, 77U);
        }
    }
}

TEST_F(JobOfTwo, TakesPartsOfTheAttemptThatRunsAlone) {
    add(0, Activity::step);
    JobTimeline here;
    note(here, 1);
    JobTimeline there;
    for (TimelinePart& part : here.parts()) there.add(std::move(part));  // none has begun
    there.begin(2);
    for (TimelinePart& part : here.parts()) there.add(std::move(part));
    EXPECT_THAT(there.attempts()[0].ranks, IsEmpty());
    EXPECT_THAT(JobTimeline().parts(), IsEmpty());
}

}  // namespace
}  // namespace ddp::launcher
