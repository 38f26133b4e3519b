// ddp-bench as users run it: every collective is right on 2 and 3 ranks, its table, JSON and SVG
// can be read, and a wrong command line gives one clear line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "examples/run_program.hpp"

namespace {

using namespace ddp::tests;
using nlohmann::json;

class Folder {
public:
    Folder() {
        std::string name = std::filesystem::temp_directory_path() / "ddp-bench-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
        path_ = name;
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string file(const std::string& name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

ProgramResult bench(int ranks, std::vector<std::string> words) {
    words.insert(words.begin(), DDP_BENCH);
    return run_ranks_of(ranks, words);
}

std::string text_of(const std::string& file) {
    std::ifstream stream(file);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
}

std::vector<json> rows_of(const std::string& file) {
    std::vector<json> rows;
    for (const std::string& line : lines_of(text_of(file))) rows.push_back(json::parse(line));
    return rows;
}

// The elements open at the end, or what is wrong; empty for well-formed text.
std::string what_is_wrong_with_xml(const std::string& text) {
    static const std::regex tag(R"(<(/?)([a-z]+)((?: [a-z0-9:-]+="[^"<]*")*)(/?)>)");
    std::vector<std::string> open;
    std::size_t tags = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), tag), end; at != end; ++at, ++tags) {
        if ((*at)[1].length() == 0 && (*at)[4].length() == 0) open.push_back((*at)[2]);
        if ((*at)[1].length() == 0) continue;
        if (open.empty() || open.back() != (*at)[2].str()) return "</" + (*at)[2].str() + ">";
        open.pop_back();
    }
    if (tags != static_cast<std::size_t>(std::count(text.begin(), text.end(), '<'))) {
        return "a < that begins no tag";
    }
    return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

class EveryCollective : public testing::TestWithParam<std::tuple<std::string, int, std::string>> {};

TEST_P(EveryCollective, IsRightAndWritesItsRows) {
    const auto& [name, ranks, path] = GetParam();
    const Folder folder;
    const auto result =
        bench(ranks, {name, "--backend", "shm", "--path", path, "--min_bytes=4", "--max-bytes",
                      "64K", "--factor", "64", "--iters", "3", "--check", "--root", "1", "--json",
                      folder.file("rows.json")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, testing::HasSubstr("# Out of bounds values : 0 OK"));
    EXPECT_THAT(result.out, testing::HasSubstr("# Avg bus bandwidth    : "));
    const auto rows = rows_of(folder.file("rows.json"));
    ASSERT_EQ(rows.size(), name == "barrier" ? 1U : 3U);
    for (const json& row : rows) {
        EXPECT_EQ(row.at("collective"), name);
        EXPECT_EQ(row.at("backend"), "shm");
        EXPECT_EQ(row.at("ranks"), ranks);
        EXPECT_EQ(row.at("path"), path);
        EXPECT_EQ(row.at("dtype"), "float32");
        EXPECT_EQ(row.at("op"), name.find("reduce") != name.npos ? "sum" : "none");
        EXPECT_EQ(row.at("wrong"), 0);
        EXPECT_EQ(row.at("bytes").get<int>() % 4, 0);
        EXPECT_GT(row.at("time_us"), 0.0);
        EXPECT_GE(row.at("p99_us"), row.at("time_us").get<double>());
        EXPECT_GE(row.at("algbw_gbs"), 0.0);
        EXPECT_GE(row.at("busbw_gbs"), 0.0);
    }
}

INSTANTIATE_TEST_SUITE_P(Bench, EveryCollective,
                         testing::Combine(testing::Values("all_reduce", "reduce", "broadcast",
                                                          "all_gather", "gather", "scatter",
                                                          "reduce_scatter", "all_to_all",
                                                          "send_recv", "barrier"),
                                          testing::Values(2, 3), testing::Values("user", "shared")),
                         [](const auto& test) {
                             return std::get<0>(test.param) + "_on_" +
                                    std::to_string(std::get<1>(test.param)) + "_" +
                                    std::get<2>(test.param);
                         });

using Names = std::pair<std::string, std::string>;  // of a dtype and an op

class EveryElement : public testing::TestWithParam<Names> {};

TEST_P(EveryElement, IsReducedRight) {
    const auto& [dtype, op] = GetParam();
    const auto result = bench(3, {"all_reduce", "--dtype", dtype, "--op", op, "--max-bytes", "100K",
                                  "--factor", "100", "--iters", "2"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, testing::HasSubstr("# Out of bounds values : 0 OK"));
}

INSTANTIATE_TEST_SUITE_P(
    Bench, EveryElement,
    testing::Values(Names{"float64", "avg"}, Names{"float16", "sum"}, Names{"float16", "avg"},
                    Names{"bfloat16", "max"}, Names{"bfloat16", "premul_sum"},
                    Names{"int8", "product"}, Names{"int16", "min"}, Names{"int32", "bit_xor"},
                    Names{"int64", "avg"}, Names{"uint8", "bit_and"}, Names{"bool", "sum"}),
    [](const auto& test) { return test.param.first + "_" + test.param.second; });

TEST(Bench, PrintsTheTableOfNcclTests) {
    const auto result = bench(2, {"all_gather", "--max-bytes", "64", "--iters", "2", "--no-check"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto lines = lines_of(result.out);
    ASSERT_GE(lines.size(), 6U) << result.out;
    EXPECT_THAT(lines[0], testing::MatchesRegex("# ddp-bench [0-9.]+: all_gather, 2 ranks, "
                                                "backend shm, path user"));
    EXPECT_THAT(lines[3], testing::MatchesRegex("# +size\\(B\\) +count +type +redop +root +"
                                                "time\\(us\\) +p99\\(us\\) +algbw\\(GB/s\\) +"
                                                "busbw\\(GB/s\\) +#wrong"));
    EXPECT_THAT(lines[4], testing::MatchesRegex(" +8 +1 +float32 +none +-1 +[0-9.]+ +[0-9.]+ +"
                                                "[0-9.]+ +[0-9.]+ +N/A"));
}

TEST(Bench, PrintsEachRowAsAShareOfTheFloor) {
    const Folder folder;
    const auto result =
        bench(2, {"all_reduce", "--min-bytes", "4", "--max-bytes", "256K", "--factor", "256",
                  "--budget", "0.01", "--floor", "--json", folder.file("rows.json")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, testing::HasSubstr("cache line hand-over"));
    EXPECT_THAT(result.out, testing::ContainsRegex("[0-9.]+ +[0-9.]+%"));
    for (const json& row : rows_of(folder.file("rows.json"))) {
        EXPECT_GT(row.at("floor_us"), 0.0);
        EXPECT_GT(row.at("floor_share"), 0.0);
    }
}

TEST(Bench, MeasuresBareLoopsBesideTheRowsThatHaveOne) {
    const Folder folder;
    const auto has_bare = [&](const std::string& kind, const std::string& bytes,
                              const std::string& path) {
        const auto result =
            bench(3, {kind, "--min-bytes", bytes, "--max-bytes", bytes, "--budget", "0.01",
                      "--floor", "--path", path, "--json", folder.file("rows.json")});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        const auto rows = rows_of(folder.file("rows.json"));
        return rows.size() == 1 && rows[0].value("bare_us", 0.0) > 0;
    };
    EXPECT_TRUE(has_bare("broadcast", "1K", "user"));
    EXPECT_TRUE(has_bare("scatter", "1K", "shared"));
    EXPECT_TRUE(has_bare("all_reduce", "300K", "user"));
    EXPECT_FALSE(has_bare("all_reduce", "300K", "shared"));
    EXPECT_TRUE(has_bare("all_reduce", "16M", "shared"));
    EXPECT_FALSE(has_bare("gather", "1K", "user"));
}

TEST(Bench, DrawsAWellFormedImage) {
    const Folder folder;
    const auto result = bench(
        2, {"all_reduce", "--max-bytes", "4K", "--iters", "3", "--plot", folder.file("plot.svg")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::string svg = text_of(folder.file("plot.svg"));
    EXPECT_EQ(what_is_wrong_with_xml(svg), "");
    EXPECT_THAT(svg, testing::HasSubstr("all_reduce, 2 ranks"));
    EXPECT_THAT(svg, testing::HasSubstr("bus bandwidth"));
}

ProgramResult bench_tuned(const std::string& tuning, std::vector<std::string> words) {
    words.insert(words.begin(), {"/usr/bin/env", "DDP_SHM_TUNING=" + tuning, DDP_BENCH});
    return run_ranks_of(2, words);
}

// Which row it is depends on the host.
TEST(Bench, WritesSwitchPointsBesideTheOthersOfTheFile) {
    const Folder folder;
    const std::string file = folder.file("tuning");
    const std::string others = "# a comment\nAnother/1/2 ranks=2 cores=2 spins=3\n";
    std::ofstream(file) << others;
    std::filesystem::permissions(file, std::filesystem::perms{0640});
    std::filesystem::create_symlink("tuning", folder.file("link"));
    for (const std::string& name : {folder.file("link"), file}) {
        const auto result = bench(2, {"--tune", name, "--max-bytes", "64K", "--budget", "0.001"});
        ASSERT_EQ(result.exit_code, 0) << result.err;
        EXPECT_THAT(result.out, testing::HasSubstr("spins=200"));
        EXPECT_THAT(result.out, testing::Not(testing::HasSubstr("string_bytes=")))
            << "some of its calls are larger than --max-bytes";
        ASSERT_THAT(text_of(file), testing::StartsWith(others));
        const auto added = lines_of(text_of(file).substr(others.size()));
        ASSERT_EQ(added.size(), 1U) << "the second one takes the place of the first";
        // Only these settings are judged by calls that small.
        EXPECT_THAT(added[0],
                    testing::MatchesRegex(
                        "[^ ]+ ranks=2 cores=[0-9]+( (,?(one_phase_bytes|spins)=[0-9]+K?)+)?"));
    }
    EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
    EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms{0640});
    const std::filesystem::directory_iterator files(folder.file(""));
    EXPECT_EQ(std::distance(begin(files), end(files)), 2) << "nothing else is left";
    const auto again = bench_tuned("@" + file, {"all_reduce", "--max-bytes", "4K", "--iters", "3"});
    EXPECT_EQ(again.exit_code, 0) << again.err;
}

TEST(Bench, SaysWhatIsWrongWithAFileOfSwitchPoints) {
    const Folder folder;
    const std::string file = folder.file("tuning");
    std::ofstream(file) << "\nAnother/1/2 ranks=2 cores=2 speed=3\n";
    const auto wrong = bench_tuned("@" + file, {"all_reduce", "--max-bytes", "4"});
    EXPECT_NE(wrong.exit_code, 0);
    EXPECT_THAT(wrong.err, testing::HasSubstr(file + ":2: DDP_SHM_TUNING: 'speed=3'"));
    const auto set = bench_tuned("spins=7", {"--tune", folder.file("other")});
    EXPECT_NE(set.exit_code, 0);
    EXPECT_THAT(set.err, testing::HasSubstr("unset it"));
    EXPECT_FALSE(std::filesystem::exists(folder.file("other")));
    const auto into_wrong = bench(2, {"--tune", file});
    EXPECT_NE(into_wrong.exit_code, 0);
    EXPECT_THAT(into_wrong.err, testing::HasSubstr(file + ":2: "));
    std::filesystem::create_directory(folder.file("folder"));
    const auto no_file = bench(2, {"--tune", folder.file("folder")});
    EXPECT_NE(no_file.exit_code, 0);
    EXPECT_THAT(no_file.err, testing::HasSubstr("--tune: this is no regular file: "));
    const auto nowhere = bench(2, {"--tune", folder.file("no/where"), "--max-bytes", "64"});
    EXPECT_NE(nowhere.exit_code, 0);
    EXPECT_THAT(nowhere.err, testing::HasSubstr("cannot write " + folder.file("no/where")));
}

TEST(Bench, AloneIsAWorldOfOne) {
    const auto result = run_program({DDP_BENCH, "all_reduce", "--max-bytes", "4K", "--iters", "3"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, testing::HasSubstr("1 ranks"));
}

class WrongCommandLine : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(WrongCommandLine, GivesOneClearLine) {
    auto words = GetParam();
    const std::string reason = words.back();
    words.back() = DDP_BENCH;
    std::rotate(words.begin(), words.end() - 1, words.end());
    const auto result = run_program(words);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(result.out, "");
    const auto lines = lines_of(result.err);
    ASSERT_EQ(lines.size(), 1U) << result.err;
    EXPECT_THAT(lines[0], testing::HasSubstr(reason));
}

// The words, then a part of the line.
INSTANTIATE_TEST_SUITE_P(
    Bench, WrongCommandLine,
    testing::Values(std::vector<std::string>{"no collective given"},
                    std::vector<std::string>{"all_reuce", "\"all_reuce\" is not a collective"},
                    std::vector<std::string>{"all_reduce", "--bogus", "--bogus"},
                    std::vector<std::string>{"all_reduce", "--op", "--op"},
                    std::vector<std::string>{"all_reduce", "--op", "mean", "--op: \"mean\""},
                    std::vector<std::string>{"all_reduce", "--dtype", "float8", "--dtype"},
                    std::vector<std::string>{"all_reduce", "--min-bytes", "4X", "--min-bytes"},
                    std::vector<std::string>{"all_reduce", "--factor", "1", "--factor"},
                    std::vector<std::string>{"all_reduce", "--min-bytes", "2M", "--max-bytes", "1M",
                                             "--min-bytes is more than --max-bytes"},
                    std::vector<std::string>{"all_reduce", "--op", "bit_or",
                                             "bit_or is not defined on float32"},
                    std::vector<std::string>{"reduce", "--root", "3", "--root: 3 is not a rank"},
                    std::vector<std::string>{"send_recv", "send_recv needs two ranks"},
                    std::vector<std::string>{"--tune", "", "--tune: \"\" is not a file"},
                    std::vector<std::string>{"--tune", "x", "barrier", "leave out barrier"},
                    std::vector<std::string>{"--tune", "x", "--dtype", "int8", "leave out --dtype"},
                    std::vector<std::string>{"--tune", "x", "--tune needs two ranks"}));

TEST(Bench, OneRankSpeaksForAll) {
    const auto result = bench(2, {"all_reduce", "--bogus"});
    EXPECT_NE(result.exit_code, 0);
    std::size_t said = 0;
    for (const std::string& line : lines_of(result.err)) said += line.starts_with("ddp-bench: ");
    EXPECT_EQ(said, 1U) << result.err;
}

TEST(Bench, ShowsItsHelpOnce) {
    const auto result = bench(2, {"--help"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto usage = result.out.find("usage: ");
    EXPECT_NE(usage, std::string::npos);
    EXPECT_EQ(result.out.find("usage: ", usage + 1), std::string::npos);
}

}  // namespace
