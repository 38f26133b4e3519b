// Defaults from the environment: PET_ variables for torchrun's options, and what wins over what.
#include "launcher/options/option_table.hpp"
#include "launcher/parse_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::Environment;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::parse;
using testing::Words;

TEST(OptionDefaults, PetVariablesGiveThem) {
    const Environment environment{{"PET_NPROC_PER_NODE", "4"},
                                  {"PET_NNODES", "1"},
                                  {"PET_NODE_RANK", "0"},
                                  {"PET_MASTER_PORT", "2000"},
                                  {"PET_MAX_RESTARTS", "2"},
                                  {"PET_RDZV_ID", "job7"},
                                  {"PET_LOG_DIR", "logs"},
                                  {"PET_REDIRECTS", "1:3"},
                                  {"PET_TEE", "3"},
                                  {"PET_ROLE", "trainer"},
                                  {"PET_MODULE", "1"},
                                  {"PET_STANDALONE", "0"},
                                  {"PET_NO_PYTHON", "0"},
                                  {"PET_RUN_PATH", "0"},
                                  {"PET_SHUTDOWN_TIMEOUT", "7"},
                                  {"PET_SIGNALS_TO_HANDLE", "SIGTERM"}};
    const Options options = parse({"x"}, environment);
    EXPECT_EQ(options.nproc_per_node.number, 4);
    EXPECT_EQ(options.rendezvous.master_port, 2000);
    EXPECT_EQ(options.restart.max_restarts, 2);
    EXPECT_EQ(options.run_id, "job7");
    EXPECT_EQ(options.logs.dir, "logs");
    EXPECT_EQ(options.logs.redirects.of(1), Streams::both);
    EXPECT_EQ(options.logs.tee.all, Streams::both);
    EXPECT_EQ(options.role, "trainer");
    EXPECT_EQ(options.program.kind, ProgramKind::module);
    EXPECT_FALSE(options.hosts.flags.standalone);
    EXPECT_EQ(options.stop.shutdown_timeout, std::chrono::seconds{7});
    EXPECT_EQ(options.stop.signals_to_handle.size(), 1U);
}

TEST(OptionDefaults, TheCommandLineWins) {
    const Environment environment{{"PET_NPROC_PER_NODE", "4"}};
    EXPECT_EQ(parse({"-n2", "x"}, environment).nproc_per_node.number, 2);
}

TEST(OptionDefaults, AnEmptyVariableIsNotSet) {
    EXPECT_EQ(parse({"x"}, {{"PET_NPROC_PER_NODE", ""}}).nproc_per_node.what, CountOf::not_given);
}

TEST(OptionDefaults, ABadOneIsOneLineThatNamesTheVariable) {
    const std::vector<std::pair<Environment, std::vector<std::string>>> rows{
        {{{"PET_NPROC_PER_NODE", "many"}}, {"$PET_NPROC_PER_NODE: \"many\"", "or gpu"}},
        {{{"PET_STANDALONE", "true"}}, {"$PET_STANDALONE: \"true\"", "0 or 1"}},
        {{{"PET_MODULE", "yes"}}, {"$PET_MODULE: \"yes\"", "0 or 1"}},
        {{{"PET_NNODES", "all"}}, {"$PET_NNODES: \"all\"", "N or MIN:MAX"}},
        {{{"PET_MASTER_PORT", "http"}}, {"$PET_MASTER_PORT: \"http\"", "65535"}},
        {{{"PET_TEE", "9"}}, {"$PET_TEE: \"9\"", "0:3,1:2"}},
        {{{"PET_START_METHOD", "thread"}}, {"$PET_START_METHOD: \"thread\"", "forkserver"}},
        {{{"PET_RUN_PATH", "yes"}}, {"$PET_RUN_PATH: \"yes\"", "0 or 1"}},
        {{{"PET_MODULE", "1"}, {"PET_NO_PYTHON", "1"}}, {"$PET_NO_PYTHON", "--module"}},
        {{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"}},
         {"$TORCH_ELASTIC_SHUTDOWN_TIMEOUT: \"soon\"", "whole number"}},
    };
    for (const auto& [environment, parts] : rows) {
        const std::string error = error_of({"x"}, environment);
        for (const std::string& part : parts) EXPECT_THAT(error, HasSubstr(part));
        EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    }
}

TEST(OptionDefaults, TheShutdownTimeoutHasTwoVariables) {
    const Environment older{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}};
    EXPECT_EQ(parse({"x"}, older).stop.shutdown_timeout, std::chrono::seconds{5});
    EXPECT_EQ(parse({"--shutdown-timeout=6", "x"}, older).stop.shutdown_timeout,
              std::chrono::seconds{6});
    Environment both = older;
    both["PET_SHUTDOWN_TIMEOUT"] = "7";
    EXPECT_EQ(parse({"x"}, both).stop.shutdown_timeout, std::chrono::seconds{7});
    EXPECT_EQ(parse({"x"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", ""}}).stop.shutdown_timeout,
              std::chrono::seconds{30});
}

TEST(OptionDefaults, OptionsThatTorchrunLacksHaveNoVariable) {
    EXPECT_EQ(parse({"x"}, {{"PET_AGENT_STORE", "nonsense"}, {"PET_TTY", "x"}}).input.tty, false);
    int without = 0;
    for (const OptionSpec& spec : option_table()) without += spec.pet_variable().empty() ? 1 : 0;
    EXPECT_GT(without, 0);
}

TEST(OptionDefaults, PrintConfigSaysWhereEachValueComesFrom) {
    Words words{"-n", "2", "--wrap=0:gdb", "--wrap=1:nice -n 5", "--tty", "--print-config"};
    const Environment environment{{"PET_MAX_RESTARTS", "3"}, {"PET_NPROC_PER_NODE", "8"}};
    const std::string text =
        config_text(testing::pointers_to(words), testing::lookup_in(environment));
    EXPECT_THAT(text, ContainsRegex("--nproc-per-node +2 +command line\n"));
    EXPECT_THAT(text, ContainsRegex("--max-restarts +3 +\\$PET_MAX_RESTARTS\n"));
    EXPECT_THAT(text, ContainsRegex("--shutdown-timeout +30 +default\n"));
    EXPECT_THAT(text, ContainsRegex("--wrap +0:gdb +command line\n"));
    EXPECT_THAT(text, ContainsRegex("--wrap +1:nice -n 5 +command line\n"));
    EXPECT_THAT(text, ContainsRegex("--tty +on +command line\n"));
    EXPECT_THAT(text, ContainsRegex("--standalone +off +default\n"));
    EXPECT_THAT(text, AllOf(Not(HasSubstr("--numa-binding")), Not(HasSubstr("--help"))));
}

}  // namespace
}  // namespace ddp::launcher
