// What hosts tell each other of ranks that record nothing, as bytes.
#include "launcher/hosts/messages/messages.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;

RankReading a_reading() {
    return {
        .rank = 5,
        .pid = 4711,
        .is_whole = true,
        .in_python = true,
        .problem = "12 of its 80 threads",
        .call = StackCall{.name = "all_reduce", .place = "train.py:9", .tid = 4712, .on_gpu = true},
        .at = std::chrono::steady_clock::time_point(7h),
        .own_frame = "step (train.py:9)",
        .process = {.pid = 4711,
                    .state = 'S',
                    .tracer = 77,
                    .is_frozen = true,
                    .cpu_time = 1234ms,
                    .waits_in = "read of /data/x"},
        .runs = ThreadRuns{.switches = ~std::uint64_t{0}, .sleeps = 7, .cpu = 5678ns}};
}

TEST(ReadingsMessage, CarriesEachField) {
    const ReadingsMessage sent{.round = 3,
                               .question = ~std::uint64_t{0},
                               .ranks = {a_reading(), {.rank = 6}},
                               .ended = {4, 7}};
    const auto got = std::get<ReadingsMessage>(decode_from_member(encode(FromMember(sent))));
    EXPECT_EQ(got.round, 3);
    EXPECT_EQ(got.question, ~std::uint64_t{0});
    EXPECT_EQ(got.ended, sent.ended);
    ASSERT_EQ(got.ranks.size(), 2U);
    const RankReading& one = got.ranks[0];
    EXPECT_EQ(one.rank, 5);
    EXPECT_EQ(one.pid, 4711);
    EXPECT_TRUE(one.is_whole && one.in_python);
    EXPECT_EQ(one.problem, "12 of its 80 threads");
    ASSERT_TRUE(one.call && one.runs);
    EXPECT_EQ(one.call->words(), "all_reduce (train.py:9)");
    EXPECT_EQ(one.call->tid, 4712);
    EXPECT_TRUE(one.call->on_gpu);
    EXPECT_EQ(one.at.time_since_epoch(), 7h);
    EXPECT_EQ(one.own_frame, "step (train.py:9)");
    EXPECT_EQ(one.process.pid, 4711);
    EXPECT_EQ(one.process.state, 'S');
    EXPECT_EQ(one.process.tracer, 77);
    EXPECT_TRUE(one.process.is_frozen);
    EXPECT_EQ(one.process.cpu_time, 1234ms);
    EXPECT_EQ(one.process.waits_in, "read of /data/x");
    EXPECT_EQ(one.runs->switches, ~std::uint64_t{0});
    EXPECT_EQ(one.runs->sleeps, 7U);
    EXPECT_EQ(one.runs->cpu, 5678ns);
    const RankReading& other = got.ranks[1];
    EXPECT_EQ(other.rank, 6);
    EXPECT_FALSE(other.is_whole || other.in_python || !other.problem.empty());
    EXPECT_FALSE(other.call || other.runs);
}

TEST(ReadingsMessage, IsRefusedWithTextsThatNobodyPrints) {
    ReadingsMessage sent{.ranks = {a_reading()}};
    std::string frame = encode(FromMember(sent));
    frame.replace(frame.find("step ("), 1, "\x1b");
    EXPECT_THROW(decode_from_member(frame), UsageError);
}

TEST(ThreadsMessage, CarriesEachField) {
    ThreadsMessage sent{.round = 3};
    const ProcessUse use{.at = std::chrono::steady_clock::time_point(7h),
                         .cpu = 6s,
                         .waited_for_processor = 5s,
                         .quotas = {{.folder = "/sys/fs/cgroup/x", .periods = 4, .used_up = 3}},
                         .major_faults = 2,
                         .swapped_bytes = 1,
                         .processors = "0-3"};
    sent.threads = {{.rank = 1, .pid = 11, .runs = {7, 5, 8ns}, .looks = 4, .waits = 3, .use = use},
                    {.rank = 1, .pid = 11, .is_of_first = false, .runs = {9, 6, 10ns}}};
    const auto got = std::get<ThreadsMessage>(decode_from_member(encode(FromMember(sent))));
    EXPECT_EQ(got.round, 3);
    ASSERT_EQ(got.threads.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(got.threads[i].rank, 1);
        EXPECT_EQ(got.threads[i].pid, 11);
        EXPECT_EQ(got.threads[i].is_of_first, i == 0);
        EXPECT_EQ(got.threads[i].runs.switches, sent.threads[i].runs.switches);
        EXPECT_EQ(got.threads[i].runs.sleeps, sent.threads[i].runs.sleeps);
        EXPECT_EQ(got.threads[i].runs.cpu, sent.threads[i].runs.cpu);
        EXPECT_EQ(got.threads[i].looks, sent.threads[i].looks);
        EXPECT_EQ(got.threads[i].waits, sent.threads[i].waits);
        EXPECT_EQ(got.threads[i].use.has_value(), i == 0);
    }
    const ProcessUse& told = got.threads[0].use.value();
    EXPECT_EQ(told.at, use.at);
    EXPECT_EQ(told.cpu, use.cpu);
    EXPECT_EQ(told.waited_for_processor, use.waited_for_processor);
    ASSERT_EQ(told.quotas.size(), 1U);
    EXPECT_EQ(told.quotas[0].folder, "/sys/fs/cgroup/x");
    EXPECT_EQ(told.quotas[0].periods, 4U);
    EXPECT_EQ(told.quotas[0].used_up, 3U);
    EXPECT_EQ(told.major_faults, 2U);
    EXPECT_EQ(told.swapped_bytes, 1U);
    EXPECT_EQ(told.processors, "0-3");
}

// More than a host with so many ranks is asked about.
TEST(ThreadsMessage, CarriesThoseOf64Ranks) {
    ThreadsMessage sent;
    for (int i = 0; i < 200; ++i)
        sent.threads.push_back({.rank = i / 2, .is_of_first = i % 2 == 0});
    const auto got = std::get<ThreadsMessage>(decode_from_member(encode(FromMember(sent))));
    EXPECT_EQ(got.threads.size(), 128U);
}

TEST(ThreadsMessage, IsRefusedWithWhatNobodyCounts) {
    const auto is_taken = [](std::vector<RankRuns> threads) {
        try {
            decode_from_member(encode(FromMember(ThreadsMessage{.threads = std::move(threads)})));
        } catch (const UsageError&) {
            return false;
        }
        return true;
    };
    EXPECT_TRUE(is_taken({{.looks = 4, .waits = 4}}));
    EXPECT_FALSE(is_taken({{.looks = 4, .waits = 5}}));
    EXPECT_FALSE(is_taken({{.looks = 1'000'000'000}}));
    EXPECT_FALSE(is_taken({{.rank = 1}, {.rank = 1}})) << "twice";
    EXPECT_FALSE(is_taken({{.rank = 2}, {.rank = 1}}));
}

TEST(ReadingsMessage, IsRefusedWithARankThatIsToldOfTwice) {
    const std::vector<RankReading> one{{.rank = 1}};
    EXPECT_THROW(
        decode_from_member(encode(FromMember(ReadingsMessage{.ranks = one, .ended = {1}}))),
        UsageError);
    EXPECT_THROW(decode_from_member(encode(FromMember(ReadingsMessage{.ended = {1, 1}}))),
                 UsageError);
}

}  // namespace
}  // namespace ddp::launcher
