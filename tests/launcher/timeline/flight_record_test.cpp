// What flight records hold, as Python reads them.
#include "launcher/timeline/flight_record.hpp"

#include "launcher/timeline/flight_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using contract::Collective;
using contract::OperationRecord;
using nlohmann::json;
using testing::read_flight_record;
using namespace std::chrono_literals;
using Time = OperationRecord::Time;

constexpr std::uint32_t group = 4'000'000'000;
constexpr std::uint32_t subgroup = 7;

OperationRecord operation(std::uint64_t sequence, Collective kind, std::uint64_t elements) {
    return {.serial = sequence,
            .group = group,
            .sequence = sequence,
            .call = {.kind = kind, .dtype = DType::float32, .elements = elements},
            .file = "train.cpp",
            .line = 42,
            .started = Time(1s)};
}

RecordedRank rank_of(int rank, std::vector<OperationRecord> operations, std::uint64_t ended) {
    RecordedRank one{.rank = rank};
    one.record.pid = 100 + rank;
    one.record.step = 5;
    one.record.groups = {{.id = group, .size = 2, .started = operations.size(), .ended = ended}};
    one.record.operations = std::move(operations);
    return one;
}

json file_of(const RecordedRank& rank, const FlightFacts& facts = {.world_size = 2}) {
    return read_flight_record(flight_records(std::vector{rank}, facts).at(0));
}

TEST(FlightRecord, HasTheFieldsOfPyTorchs) {
    OperationRecord first = operation(1, Collective::all_reduce, 16);
    first.ended = Time(2s);
    const json file = file_of(rank_of(1, {first, operation(2, Collective::barrier, 0)}, 1),
                              {.world_size = 2, .to_wall_clock = 1'000'000s});
    EXPECT_EQ(file["version"], "2.10");
    EXPECT_EQ(file["rank"], 1);
    EXPECT_EQ(file["pid"], 101);
    EXPECT_EQ(file["step"], 5);
    const json groups = json::parse(R"({"4000000000":{"name":"4000000000","desc":"all_ranks",
                              "ranks":"[0,1]"}})");
    EXPECT_EQ(file["pg_config"], groups);
    const json progress = json::parse(R"({"4000000000":{"last_enqueued_collective":2,
                              "last_started_collective":2,"last_completed_collective":1}})");
    EXPECT_EQ(file["pg_status"], progress);
    ASSERT_EQ(file["entries"].size(), 2U);
    const json ended = json::parse(R"json({
        "record_id":1,"pg_id":4000000000,"process_group":["4000000000","all_ranks"],
        "collective_seq_id":1,"p2p_seq_id":0,"op_id":1,"is_p2p":false,
        "profiling_name":"nccl:all_reduce","input_sizes":[[16]],"input_dtypes":["Float"],
        "output_sizes":[[16]],"output_dtypes":["Float"],"time_created_ns":1000001000000000,
        "time_discovered_started_ns":1000001000000000,
        "time_discovered_completed_ns":1000002000000000,"state":"completed","retired":true,
        "frames":[{"name":"all_reduce of 16 float32 (sum)","filename":"train.cpp","line":42}]
    })json");
    EXPECT_EQ(file["entries"][0], ended);
    EXPECT_EQ(file["entries"][1]["state"], "started");
    EXPECT_EQ(file["entries"][1]["retired"], false);
    EXPECT_EQ(file["entries"][1]["time_discovered_completed_ns"], json());
}

TEST(FlightRecord, HasWhatGoesInAndWhatComesOut) {
    struct Expected {
        Collective kind;
        bool uneven;
        const char* name;
        int in, out;
    };
    for (const Expected& one :
         {Expected{Collective::all_reduce, false, "all_reduce", 6, 6},
          Expected{Collective::broadcast, false, "broadcast", 6, 6},
          Expected{Collective::all_gather, false, "_all_gather_base", 6, 12},
          Expected{Collective::all_gather, true, "all_gather_v", 6, 6},
          Expected{Collective::reduce_scatter, false, "_reduce_scatter_base", 12, 6},
          Expected{Collective::reduce_scatter, true, "reduce_scatter_v", 6, 6},
          Expected{Collective::barrier, false, "barrier", 1, 1},
          Expected{Collective::reduce, false, "reduce", 6, 6},
          Expected{Collective::gather, false, "gather", 6, 12},
          Expected{Collective::scatter, false, "scatter", 12, 6},
          Expected{Collective::all_to_all, false, "all_to_all", 12, 12},
          Expected{Collective::allocate, false, "new_window", 6, 6},
          Expected{Collective::adopt, false, "new_window", 6, 6}}) {
        OperationRecord call = operation(1, one.kind, 6);
        call.call.uneven = one.uneven;
        const json entry = file_of(rank_of(0, {call}, 0))["entries"][0];
        EXPECT_EQ(entry["profiling_name"], "nccl:" + std::string(one.name));
        EXPECT_EQ(entry["input_sizes"], json::parse("[[" + std::to_string(one.in) + "]]"))
            << one.name;
        EXPECT_EQ(entry["output_sizes"], json::parse("[[" + std::to_string(one.out) + "]]"))
            << one.name;
    }
}

TEST(FlightRecord, HasTheElementsTypes) {
    const std::vector<std::pair<DType, const char*>> types{
        {DType::float32, "Float"},     {DType::float64, "Double"}, {DType::int32, "Int"},
        {DType::int64, "Long"},        {DType::uint8, "Byte"},     {DType::float16, "Half"},
        {DType::bfloat16, "BFloat16"}, {DType::int8, "Char"},      {DType::int16, "Short"},
        {DType::boolean, "Bool"}};
    for (const auto& [dtype, name] : types) {
        OperationRecord call = operation(1, Collective::broadcast, 1);
        call.call.dtype = dtype;
        const json entry = file_of(rank_of(0, {call}, 0))["entries"][0];
        EXPECT_EQ(entry["input_dtypes"], json::array({name}));
        EXPECT_EQ(entry["output_dtypes"], json::array({name}));
    }
}

TEST(FlightRecord, TellsCallsOnAGpuThatWaitForOthersFromTheOneThatRuns) {
    RecordedRank rank =
        rank_of(0,
                {operation(1, Collective::all_reduce, 1), operation(2, Collective::all_reduce, 1),
                 operation(3, Collective::all_reduce, 1)},
                1);
    rank.record.groups[0].on_gpu = true;
    const json entries = file_of(rank)["entries"];
    EXPECT_EQ(entries[0]["state"], "completed") << "as the group's page says";
    EXPECT_EQ(entries[1]["state"], "started");
    EXPECT_EQ(entries[2]["state"], "scheduled");
    EXPECT_EQ(entries[2]["time_discovered_started_ns"], json());
}

TEST(FlightRecord, TellsThatACallHasFailed) {
    RecordedRank rank = rank_of(0, {operation(1, Collective::all_reduce, 1)}, 0);
    rank.record.groups[0].end = contract::GroupEnd::failed;
    const json entry = file_of(rank)["entries"][0];
    EXPECT_EQ(entry["state"], "started");
    EXPECT_EQ(entry["retired"], true);
}

// The rank that is in no group of the others, and has not joined, has a file as well.
TEST(FlightRecord, KnowsWhoIsInAGroup) {
    RecordedRank first = rank_of(4, {operation(1, Collective::all_reduce, 1)}, 1);
    RecordedRank second = rank_of(5, {operation(1, Collective::all_reduce, 1)}, 1);
    for (RecordedRank* const one : {&first, &second}) one->record.groups[0].id = subgroup;
    second.record.operations[0].group = 9;  // of a group whose entry is another's by now
    first.record.operations[0].group = subgroup;
    const std::vector<RecordedRank> ranks{first, second, {.rank = 6}};
    const std::vector<std::string> files = flight_records(ranks, {.world_size = 8});
    ASSERT_EQ(files.size(), 3U);
    const json first_groups =
        json::parse(R"({"7":{"name":"7","desc":"undefined","ranks":"[4,5]"}})");
    EXPECT_EQ(read_flight_record(files[0])["pg_config"], first_groups);
    const json second_groups = json::parse(R"({"7":{"name":"7","desc":"undefined","ranks":"[4,5]"},
                              "9":{"name":"9","desc":"undefined","ranks":"[5]"}})");
    EXPECT_EQ(read_flight_record(files[1])["pg_config"], second_groups);
    const json third = read_flight_record(files[2]);
    EXPECT_EQ(third["pg_config"], json::object());
    EXPECT_EQ(third["entries"], json::array());
}

// Of 16 groups a page has entries; calls are recorded of more.
TEST(FlightRecord, HasTheSizesOfAGroupThatAnotherRankKnows) {
    RecordedRank first = rank_of(0, {operation(1, Collective::all_gather, 6)}, 1);
    RecordedRank second = rank_of(1, {operation(1, Collective::all_gather, 6)}, 1);
    first.record.groups.clear();
    const auto files = flight_records(std::vector{first, second}, {.world_size = 2});
    for (const std::string& file : files) {
        EXPECT_EQ(read_flight_record(file)["entries"][0]["output_sizes"][0][0], 12);
    }
}

TEST(FlightRecord, HoldsWhateverNumbersAPageHas) {
    constexpr std::uint64_t most = UINT64_MAX;
    OperationRecord call = operation(most, Collective::all_reduce, most);
    call.line = UINT32_MAX;
    RecordedRank rank = rank_of(0, {call}, 0);
    rank.record.step = INT64_MIN;
    rank.record.pid = -1;
    const json file = file_of(rank);
    EXPECT_EQ(file["step"], INT64_MIN);
    EXPECT_EQ(file["pid"], -1);
    EXPECT_EQ(file["entries"][0]["collective_seq_id"], most);
    EXPECT_EQ(file["entries"][0]["input_sizes"][0][0], most);
    EXPECT_EQ(file["entries"][0]["frames"][0]["line"], UINT32_MAX);
}

}  // namespace
}  // namespace ddp::launcher
