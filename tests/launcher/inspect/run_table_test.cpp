#include "launcher/inspect/run_table.hpp"

#include "launcher/inspect/run_view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

json run_of(const RunView& view, const std::optional<RunEnd>& end = std::nullopt) {
    return json::parse(
        to_json({.run_id = "five", .command = {"./train", "a b"}, .launcher_pid = 42}, view, end));
}

RankRow row() {
    return {.rank = 4,
            .pid = 4711,
            .state = "stopped",
            .progress = {.step = 120, .steps_per_second = 12.34},
            .call = "in barrier, operation 7 (a.cpp:9)",
            .since_call = 3200ms,
            .share_in_calls = 0.384,
            .use = {.cpu_share = 0.97, .resident_bytes = std::uint64_t{812} << 20}};
}

TEST(RunTable, HasARowForEachRank) {
    const std::string text = run_table(run_of({.world_size = 8, .ranks = {row()}}));
    EXPECT_THAT(text, HasSubstr("   4  4711  stopped   120     12.3      38 %  97 %  812 MiB  in "
                                "barrier, operation 7 (a.cpp:9), for 3.2 s\n"));
    EXPECT_THAT(text, AllOf(HasSubstr("./train 'a b'\nrunning for"), HasSubstr("run five"),
                            HasSubstr("launcher pid 42"),
                            HasSubstr("1 of the job's 8 ranks are on this host")));
}

TEST(RunTable, NamesTheHostsOfRanksOfOthers) {
    RankRow other = row();
    other.rank = 5;
    other.host = "node9";
    RunView view{.world_size = 2, .ranks = {row(), other}, .has_asked_hosts = true};
    const json run = run_of(view);
    const std::string here = run.at("host").get<std::string>();
    const std::string text = run_table(run);
    const auto padded = [&](std::string name) {
        name.resize(std::max(here.size(), std::string("node9").size()), ' ');
        return name;
    };
    EXPECT_THAT(text, AllOf(HasSubstr("rank  " + padded("host") + "   pid  process  step"),
                            HasSubstr("   4  " + padded(here) + "  4711  stopped   120"),
                            HasSubstr("   5  " + padded("node9") + "  4711  stopped   120")));
    EXPECT_THAT(text, Not(HasSubstr("of the job's"))) << "all are there";
    view.world_size = 8;
    EXPECT_THAT(run_table(run_of(view)),
                HasSubstr("2 of the job's 8 ranks are shown; of the others their hosts tell "
                          "nothing\n"));
}

TEST(RunTable, SaysLessWhereLessIsKnown) {
    const std::string text = run_table(
        run_of({.world_size = 1, .ranks = {{.pid = 9, .state = "running", .phase = "joining"}}}));
    EXPECT_THAT(text,
                HasSubstr("   0    9  running     -        -         -    -       -  joining\n"));
    EXPECT_THAT(text, Not(HasSubstr("on this host")));
}

TEST(RunTable, TellsHowItEndedOnce) {
    RunView view{.world_size = 1, .ranks = {row()}};
    view.ranks[0].ended = ExitStatus{.code = 3};
    view.hang = HangFacts{.kind = "missing", .ranks = {4}, .text = "rank 4 holds up rank 0"};
    EXPECT_THAT(run_table(run_of(view)), HasSubstr("\nrank 4 holds up rank 0\n"));
    const std::string text = run_table(run_of(view, RunEnd{.exit_code = 3, .report = "it failed"}));
    EXPECT_THAT(text, AllOf(HasSubstr("ended after"), HasSubstr(", exit code 3;"),
                            HasSubstr("4711  exit code 3"), HasSubstr("\nit failed\n")));
    EXPECT_THAT(text, Not(HasSubstr("holds up")));
}

TEST(RunTable, HasNothingThatATerminalObeys) {
    RunView view{.world_size = 1, .ranks = {row()}};
    view.ranks[0].call = "in \033[2J\xc2\x9b\x7f, \xc3\xa9";
    view.hang = HangFacts{.kind = "missing", .ranks = {4}, .text = "\033]0;title\a\nsecond line"};
    const std::string text = run_table(run_of(view));
    EXPECT_THAT(text, AllOf(Not(HasSubstr("\033")), Not(HasSubstr("\xc2\x9b")),
                            Not(HasSubstr("\a")), Not(HasSubstr("\x7f"))));
    EXPECT_THAT(text, AllOf(HasSubstr("\xc3\xa9"), HasSubstr("\nsecond line")));
}

TEST(RunTable, HasOneLineForEachRank) {
    RunView view{.world_size = 1, .ranks = {row()}};
    view.ranks[0].call = "in barrier\n   9  4712  running";
    json run = run_of(view);
    run["run_id"] = "five\nsix";
    EXPECT_THAT(run_table(run), AllOf(Not(HasSubstr("\n   9")), HasSubstr("run five?six")));
}

TEST(RunTable, RefusesWhatIsNone) {
    EXPECT_THROW(run_table(json::object()), json::exception);
    const json run = run_of({.world_size = 1, .ranks = {row()}});
    EXPECT_TRUE(is_run(run));
    for (const json& wrong : {json("many"), json(1e30), json(), json::array()}) {
        json other = run;
        other["ranks"][0]["step"] = wrong;
        EXPECT_THROW(run_table(other), json::exception) << wrong;
        EXPECT_FALSE(is_run(other));
    }
    EXPECT_FALSE(is_run(json()));
}

TEST(CpuShares, AreOfTheTimeBetweenTwoViews) {
    json earlier = run_of({.ranks = {row()}});
    json later = earlier;
    earlier["ranks"][0]["read_seconds"] = 10.0;
    later["ranks"][0]["read_seconds"] = 10.5;
    earlier["ranks"][0]["cpu_seconds"] = 3.0;
    later["ranks"][0]["cpu_seconds"] = 3.25;
    settle_cpu_shares(earlier, later);
    EXPECT_EQ(later["ranks"][0]["cpu_share"], 0.5);
    later["ranks"][0]["rank"] = 5;  // another host's, whose pids are its own
    later["ranks"][0]["cpu_share"] = nullptr;
    settle_cpu_shares(earlier, later);
    EXPECT_TRUE(later["ranks"][0]["cpu_share"].is_null());
    later["ranks"][0]["rank"] = 4;
    later["ranks"][0]["pid"] = 1;  // another attempt's
    later["ranks"][0]["cpu_share"] = nullptr;
    settle_cpu_shares(earlier, later);
    EXPECT_TRUE(later["ranks"][0]["cpu_share"].is_null());
}

}  // namespace
}  // namespace ddp::launcher
