// The argv of each worker, against torchrun's.
#include "launcher/plan/worker_command.hpp"

#include "launcher/parse_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::parse;
using testing::Words;

// Everything but "absent" is found, in /bin.
Program find(const std::string& name) {
    if (name == "absent") return {"", "program \"absent\" not found", 127};
    return {name.find('/') == name.npos ? "/bin/" + name : name, "", 0};
}
Program find_a_script(const std::string& name) {
    if (name == "absent.py") return {"", "script \"absent.py\" not found", 127};
    return {name, "", 0};
}

WorkerCommands commands_of(const Words& words, const std::string& python = "python3") {
    return worker_commands(parse(words), 2,
                           {.program = find, .script = find_a_script, .python = python});
}

WorkerCommand command_of(const Words& words, std::size_t rank = 1) {
    const WorkerCommands commands = commands_of(words);
    EXPECT_EQ(commands.missing.problem, "");
    EXPECT_EQ(commands.of_rank.size(), 2U);
    return commands.of_rank.at(rank);
}

TEST(WorkerCommand, AProgramIsRunAsItIs) {
    const WorkerCommand command = command_of({"train", "--lr", "0.1"});
    EXPECT_EQ(command.path, "/bin/train");
    EXPECT_THAT(command.arguments, ElementsAre("train", "--lr", "0.1"));
}

TEST(WorkerCommand, AScriptIsRunByPythonUnbuffered) {
    const WorkerCommand command = command_of({"train.py", "--lr", "0.1"});
    EXPECT_EQ(command.path, "/bin/python3");
    EXPECT_THAT(command.arguments, ElementsAre("python3", "-u", "train.py", "--lr", "0.1"));
    const WorkerCommands other = commands_of({"train.py"}, "/opt/python");
    EXPECT_EQ(other.of_rank.front().path, "/opt/python");
}

TEST(WorkerCommand, AModuleIsRunByPythonWhateverItsName) {
    EXPECT_THAT(command_of({"-m", "pkg.train", "-v"}).arguments,
                ElementsAre("python3", "-u", "-m", "pkg.train", "-v"));
    EXPECT_EQ(commands_of({"-m", "absent.py"}).missing.problem, "");
}

TEST(WorkerCommand, NoPythonRunsAScriptItself) {
    EXPECT_THAT(command_of({"--no-python", "./train.py", "a"}).arguments,
                ElementsAre("./train.py", "a"));
}

TEST(WorkerCommand, TheLocalRankIsPassedAfterTheProgram) {
    EXPECT_THAT(command_of({"--pass-local-rank", "train.py", "a"}).arguments,
                ElementsAre("python3", "-u", "train.py", "--local_rank=1", "a"));
    EXPECT_THAT(command_of({"--pass-local-rank", "--use-env", "train.py"}).arguments,
                ElementsAre("python3", "-u", "train.py"));
}

TEST(WorkerCommand, ArgumentsAreTemplates) {
    EXPECT_THAT(command_of({"echo", "${local_rank}", "a$$b$local_rank", "a$$b"}).arguments,
                ElementsAre("echo", "1", "a$b1", "a$$b"));
    EXPECT_THAT(command_of({"rank${local_rank}.py"}).arguments,
                ElementsAre("python3", "-u", "rank1.py"));
    // A program's own name is no argument.
    EXPECT_THAT(command_of({"./a$$b"}).arguments, ElementsAre("./a$$b"));
}

TEST(WorkerCommand, SubstitutesAsPythonsTemplatesDo) {
    const std::vector<std::pair<const char*, const char*>> rows{
        {"", ""},
        {"plain", "plain"},
        {"${local_rank}", "7"},
        {"$local_rank", "7"},
        {"a${local_rank}b$local_rank.c", "a7b7.c"},
        {"$local_rank_x", "$local_rank_x"},
        {"${local_rank", "${local_rank"},
        {"${ local_rank}", "${ local_rank}"},
        {"$LOCAL_RANK", "$LOCAL_RANK"},
        {"${other}", "${other}"},
        {"$", "$"},
        {"$$", "$"},
        {"$$$", "$$"},
        {"$${local_rank}", "${local_rank}"},
        {"$$$local_rank", "$7"},
        {"$1", "$1"},
        {"${}", "${}"},
        {"100$ ${local_rank}", "100$ 7"},
    };
    for (const auto& [text, expected] : rows) {
        EXPECT_EQ(substitute_local_rank(text, 7), expected) << text;
    }
}

TEST(WorkerCommand, AWrapStandsBeforeItsRanks) {
    const Words words{"-n2", "--wrap=1:gdb --args", "train", "a"};
    EXPECT_THAT(command_of(words, 0).arguments, ElementsAre("train", "a"));
    EXPECT_EQ(command_of(words, 1).path, "/bin/gdb");
    EXPECT_THAT(command_of(words, 1).arguments, ElementsAre("gdb", "--args", "/bin/train", "a"));
}

TEST(WorkerCommand, TheFirstOfSeveralWrapsIsTheOutermost) {
    EXPECT_THAT(
        command_of({"-n2", "--wrap=all:nice -n 5", "--wrap=0-1:valgrind -q", "t.py"}).arguments,
        ElementsAre("nice", "-n", "5", "/bin/valgrind", "-q", "/bin/python3", "-u", "t.py"));
}

TEST(WorkerCommand, WhatIsMissingIsKnownBeforeAnythingStarts) {
    EXPECT_THAT(commands_of({"absent"}).missing.problem, HasSubstr("\"absent\""));
    EXPECT_EQ(commands_of({"absent"}).missing.exit_code, 127);
    EXPECT_THAT(commands_of({"absent.py"}).missing.problem, HasSubstr("script \"absent.py\""));
    EXPECT_THAT(commands_of({"-n2", "--wrap=1:absent -x", "true"}).missing.problem,
                HasSubstr("\"absent\""));
    EXPECT_THAT(commands_of({"train.py"}, "absent").missing.problem, HasSubstr("PYTHON_EXEC"));
}

}  // namespace
}  // namespace ddp::launcher
