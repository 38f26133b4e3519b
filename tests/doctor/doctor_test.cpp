// ddp-doctor as users run it: fit here, in words and as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "examples/run_program.hpp"

namespace {

using namespace ddp::tests;
using nlohmann::json;
using testing::HasSubstr;

int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
    return count;
}

TEST(Doctor, FindsThisHostFit) {
    const ProgramResult result = run_program({DDP_DOCTOR});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr("two ranks     their sums are right: 4 bytes in "));
    EXPECT_THAT(result.out, HasSubstr("\nddp-doctor: this host is fit"));
}

TEST(Doctor, LooksAtTheHostAndNotAtTheJobOfItsEnvironment) {
    const ProgramResult result =
        run_program({"/bin/sh", "-c",
                     "PET_NNODES=2 PET_RDZV_ENDPOINT=no.such.host:1 DDP_BACKEND=nccl "
                     "exec " DDP_DOCTOR});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("their sums are right"));
}

TEST(Doctor, SaysTheSameAsJson) {
    const ProgramResult result = run_program({DDP_DOCTOR, "--json", "--no-ranks"});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    const json report = json::parse(result.out);
    EXPECT_EQ(report.at("fit"), true);
    std::set<std::string> checks;
    for (const json& one : report.at("findings")) {
        checks.insert(one.at("check").get<std::string>());
        EXPECT_NE(one.at("says"), "");
        EXPECT_THAT(one.at("level").get<std::string>(), testing::AnyOf("ok", "note", "warn"));
        EXPECT_TRUE(one.at("level") != "warn" || one.at("remedy") != "") << one;
    }
    for (const char* check : {"processors", "memory", "shared memory", "limits", "kernel",
                              "network", "port", "clock", "libraries", "GPUs"}) {
        EXPECT_TRUE(checks.contains(check)) << check;
    }
    EXPECT_FALSE(checks.contains("two ranks"));
}

// Three descriptors are taken, and one is left: enough for a file, too few for a pipe.
TEST(Doctor, FindsThatItCannotLook) {
    const ProgramResult result =
        run_program({"/bin/sh", "-c", "exec 3>&-; ulimit -n 4; exec " DDP_DOCTOR " --no-ranks"});
    EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
    EXPECT_THAT(result.out,
                HasSubstr("FAIL  kernel        this could not be looked at: a pipe for a child: "));
    EXPECT_THAT(result.out, HasSubstr("will make jobs fail"));
}

TEST(Doctor, ComparesAllRanksOfAJob) {
    const ProgramResult result =
        run_program({DDP_LAUNCH, "--nproc_per_node=3", DDP_DOCTOR, "--all-hosts"});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    for (const char* line :
         {"note  hosts         all ranks are on ", "ok    clocks        at most ",
          "ok    network       there and back in ",
          "ok    all ranks     their sums are right: 16 MiB in ",
          "ddp-doctor: these hosts are fit"}) {
        EXPECT_EQ(count_of(result.out, line), 1) << line << " in " << result.out;
    }
    EXPECT_EQ(count_of(result.out, "not the same everywhere"), 0) << result.out;
    const ProgramResult as_json =
        run_program({DDP_LAUNCH, "--nproc_per_node=2", DDP_DOCTOR, "--all-hosts", "--json"});
    EXPECT_EQ(json::parse(as_json.out).at("fit"), true) << as_json.out;
}

TEST(Doctor, ComparesNothingWithoutAJob) {
    const ProgramResult result = run_program({DDP_DOCTOR, "--all-hosts"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("--all-hosts takes a job with a rank on each host: "));
}

TEST(Doctor, KnowsItsOptions) {
    EXPECT_THAT(run_program({DDP_DOCTOR, "--help"}).out, HasSubstr("usage: ddp-doctor [options]"));
    EXPECT_THAT(run_program({DDP_DOCTOR, "--version"}).out, testing::StartsWith("ddp-doctor 0."));
    for (const char* word : {"--jsn", "--js", "surplus"}) {
        const ProgramResult result = run_program({DDP_DOCTOR, word});
        EXPECT_EQ(result.exit_code, 2) << word;
        EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
        EXPECT_THAT(result.err, HasSubstr("--help shows the options"));
    }
    EXPECT_EQ(run_program({"/bin/sh", "-c", DDP_DOCTOR " --no-ranks >/dev/full"}).exit_code, 1);
}

}  // namespace
