// The command line as a table: what is taken, and a row for each input that is refused.
#include "launcher/options.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string, std::less<>>;

std::vector<char*> pointers_to(Words& words) {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    return pointers;
}

Options parse(Words words, const Environment& environment = {}) {
    return parse_options(pointers_to(words), [&](std::string_view name) {
        const auto found = environment.find(name);
        return found != environment.end() ? std::optional(found->second) : std::nullopt;
    });
}

std::string error_of(const Words& words, const Environment& environment = {}) {
    try {
        parse(words, environment);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "no error";
}

TEST(Options, DefaultsAreThoseOfASingleWorker) {
    const Options options = parse({"./train"});
    EXPECT_EQ(options.action, Action::run);
    EXPECT_EQ(options.nproc_per_node.number, 1);
    EXPECT_EQ(options.master_addr, "127.0.0.1");
    EXPECT_EQ(options.master_port, 0);
    EXPECT_EQ(options.shutdown_timeout, std::chrono::seconds{30});
    EXPECT_EQ(options.agent_store, AgentStore::on);
    EXPECT_FALSE(options.standalone);
    EXPECT_THAT(options.command, ElementsAre("./train"));
}

TEST(Options, UnderscoresAndDashesAndEqualsSignsAreTheSame) {
    const std::vector<Words> spellings{{"--nproc_per_node=4", "x"},
                                       {"--nproc-per-node=4", "x"},
                                       {"--nproc_per_node", "4", "x"},
                                       {"--nproc-per-node", "4", "--", "x"},
                                       {"--nproc-per_node", "4", "x"}};
    for (const Words& words : spellings) {
        EXPECT_EQ(parse(words).nproc_per_node.number, 4);
        EXPECT_THAT(parse(words).command, ElementsAre("x"));
    }
}

TEST(Options, ValuesArriveWhereTheyBelong) {
    const Options options = parse({"--master_addr", "localhost", "--master_port=29500",
                                   "--shutdown-timeout", "0", "--agent-store=off", "x"});
    EXPECT_EQ(options.master_addr, "localhost");
    EXPECT_EQ(options.master_port, 29500);
    EXPECT_EQ(options.shutdown_timeout, std::chrono::seconds{0});
    EXPECT_EQ(options.agent_store, AgentStore::off);
}

TEST(Options, TheLastOfRepeatedOptionsCounts) {
    EXPECT_EQ(parse({"--nproc-per-node=2", "--nproc_per_node", "3", "x"}).nproc_per_node.number, 3);
}

TEST(Options, TheWorkersWordsPassUntouched) {
    const Options options = parse({"--nproc-per-node=2", "./train", "--lr", "0.1", "--", "--help",
                                   "--nproc_per_node=9", "", "-x"});
    EXPECT_EQ(options.action, Action::run);
    EXPECT_EQ(options.nproc_per_node.number, 2);
    EXPECT_THAT(options.command, ElementsAre("./train", "--lr", "0.1", "--", "--help",
                                             "--nproc_per_node=9", "", "-x"));
}

TEST(Options, ADoubleDashEndsTheLaunchersPart) {
    EXPECT_THAT(parse({"--", "--odd-name", "--"}).command, ElementsAre("--odd-name", "--"));
}

TEST(Options, AnOptionsValueIsNotTheProgram) {
    Words words{"--nproc-per-node", "2", "--master-port", "0", "prog", "arg"};
    const SplitArguments split = split_arguments(pointers_to(words));
    EXPECT_THAT(split.options, ElementsAre("--nproc-per-node=2", "--master-port=0"));
    EXPECT_THAT(split.command, ElementsAre("prog", "arg"));
}

TEST(Options, StandaloneIgnoresAddressAndPort) {
    const Options options =
        parse({"--standalone", "--master-addr=node7", "--master-port=29500", "x"});
    EXPECT_TRUE(options.standalone);
    EXPECT_EQ(options.master_port, 0);
    EXPECT_EQ(options.master_addr, "127.0.0.1");
}

TEST(Options, TheShutdownTimeoutHasADefaultInTheEnvironment) {
    const Environment environment{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}};
    EXPECT_EQ(parse({"x"}, environment).shutdown_timeout, std::chrono::seconds{5});
    EXPECT_EQ(parse({"--shutdown-timeout=6", "x"}, environment).shutdown_timeout,
              std::chrono::seconds{6});
    EXPECT_EQ(parse({"x"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", ""}}).shutdown_timeout,
              std::chrono::seconds{30});
    EXPECT_THAT(error_of({"x"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"}}),
                HasSubstr("$TORCH_ELASTIC_SHUTDOWN_TIMEOUT: \"soon\""));
}

TEST(Options, HelpAndVersionNeedNoProgram) {
    EXPECT_EQ(parse({"--help"}).action, Action::help);
    EXPECT_EQ(parse({"-h"}).action, Action::help);
    EXPECT_EQ(parse({"--version"}).action, Action::version);
    EXPECT_THAT(parse({"--help"}).command, IsEmpty());
}

TEST(Options, HelpNamesEveryOption) {
    for (const char* name : {"--nproc-per-node", "--standalone", "--master-addr", "--master-port",
                             "--shutdown-timeout", "--agent-store", "--help", "--version"}) {
        EXPECT_THAT(help_text(), HasSubstr(name));
    }
}

struct BadInput {
    Words words;
    std::vector<const char*> message;  // all of them are in the one line
};

std::vector<BadInput> bad_inputs() {
    return {
        {{}, {"no program to run", "--help"}},
        {{"--standalone"}, {"no program to run"}},
        {{"--"}, {"no program to run"}},
        {{"--nproc_per_node=two", "x"}, {"--nproc-per-node", "\"two\"", "from 1 to"}},
        {{"--nproc_per_node=0", "x"}, {"--nproc-per-node", "\"0\""}},
        {{"--nproc_per_node=-1", "x"}, {"--nproc-per-node", "\"-1\""}},
        {{"--nproc_per_node", "-1", "x"}, {"--nproc-per-node", "\"-1\""}},
        {{"--nproc_per_node=", "x"}, {"--nproc-per-node", "\"\""}},
        {{"--nproc_per_node=1.5", "x"}, {"\"1.5\""}},
        {{"--nproc_per_node= 2", "x"}, {"\" 2\""}},
        {{"--nproc_per_node=99999999999", "x"}, {"\"99999999999\""}},
        {{"--nproc_per_node=4097", "x"}, {"\"4097\"", "4096"}},
        {{"--nproc_per_node"}, {"--nproc-per-node needs a value"}},
        {{"--master-port=65536", "x"}, {"--master-port", "65535"}},
        {{"--master-port=-1", "x"}, {"--master-port", "\"-1\""}},
        {{"--master-port", "http", "x"}, {"--master-port", "\"http\""}},
        {{"--master-addr=", "x"}, {"--master-addr"}},
        {{"--master-addr=10.0.0.1", "x"}, {"--master-addr", "10.0.0.1", "--agent-store=off"}},
        {{"--shutdown-timeout=-1", "x"}, {"--shutdown-timeout", "\"-1\""}},
        {{"--shutdown-timeout=1s", "x"}, {"--shutdown-timeout", "\"1s\""}},
        {{"--agent-store=yes", "x"}, {"--agent-store", "\"yes\"", "on or off"}},
        {{"--standalone=1", "x"}, {"--standalone takes no value"}},
        {{"--nproc-per-nod=2", "x"}, {"unknown option --nproc-per-nod", "--nproc-per-node?"}},
        {{"--nproc", "2", "x"}, {"unknown option --nproc", "did you mean --nproc-per-node?"}},
        {{"--Standalone", "x"}, {"unknown option --Standalone", "did you mean --standalone?"}},
        {{"--quantum", "x"}, {"unknown option --quantum", "--help lists"}},
        {{"-x", "x"}, {"unknown option -x"}},
        {{"--=3", "x"}, {"unknown option --"}},
    };
}

TEST(Options, EveryBadInputIsOneLineThatNamesOptionAndValue) {
    for (const BadInput& row : bad_inputs()) {
        const std::string error = error_of(row.words);
        for (const char* part : row.message) EXPECT_THAT(error, HasSubstr(part));
        EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    }
}

TEST(Options, AForeignAddressIsFineWhenRankZeroServes) {
    EXPECT_EQ(parse({"--agent-store=off", "--master-addr=10.0.0.1", "x"}).master_addr, "10.0.0.1");
}

}  // namespace
}  // namespace ddp::launcher
