// docs/launcher.md against the option table and --help: a row for each option and no other, with
// the word for how it stands to torchrun's.
#include "launcher/options/option_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

namespace ddp::launcher {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string word_for(TorchrunCompat compat) {
    switch (compat) {
        case TorchrunCompat::own:
            return "ours";
        case TorchrunCompat::same:
            return "same";
        case TorchrunCompat::better:
            return "better";
        case TorchrunCompat::later:
            return "later";
        case TorchrunCompat::declined:
            return "why not";
    }
    return "";
}

// Names to compatibility, from rows "| `--name ...` | compat | ... |".
std::map<std::string, std::string> rows_of(const std::string& path) {
    std::map<std::string, std::string> rows;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const std::string start = "| `--";
        if (!line.starts_with(start)) continue;
        const std::string name = line.substr(5, line.find_first_of(" `", 5) - 5);
        const std::size_t second = line.find(" | ") + 3;
        const std::string compat = line.substr(second, line.find(" | ", second) - second);
        EXPECT_TRUE(rows.emplace(name, compat).second) << "twice: " << name;
        EXPECT_GT(line.size(), line.find(" | ", second) + 6) << "says nothing: " << line;
    }
    return rows;
}

TEST(LauncherDocs, HaveARowForEachOptionAndNoOther) {
    std::map<std::string, std::string> expected;
    for (const OptionSpec& spec : option_table()) expected[spec.name] = word_for(spec.compat);
    EXPECT_EQ(rows_of(DDP_LAUNCHER_DOCS), expected);
}

TEST(LauncherDocs, AndHelpNameTheSameOptions) {
    std::set<std::string> in_help;
    const std::string help = help_text();
    for (std::size_t at = help.find("--"); at != help.npos; at = help.find("--", at + 2)) {
        const std::size_t line = help.rfind('\n', at) + 1;
        const std::string before = help.substr(line, at - line);
        // Two columns in, or after a short form: what the line is about. Descriptions stand further
        // to the right.
        const bool after_short_form = before.starts_with("  -") && before.ends_with("[ ");
        if (before != "  " && !after_short_form) continue;
        in_help.insert(help.substr(at + 2, help.find_first_of(" \n", at) - at - 2));
    }
    std::set<std::string> in_docs;
    for (const auto& [name, compat] : rows_of(DDP_LAUNCHER_DOCS)) in_docs.insert(name);
    EXPECT_EQ(in_help, in_docs);
}

TEST(LauncherDocs, SayWhereTorchrunDoesOtherwise) {
    const std::string docs = text_of(DDP_LAUNCHER_DOCS);
    EXPECT_THAT(docs, HasSubstr("`ddp-launch train.py -- --b` runs `train.py -- --b`"));
    EXPECT_THAT(docs, HasSubstr("(torchrun: a UUID since 2.15, `none` before)"));
}

TEST(LauncherDocs, NameTheVariables) {
    const std::string docs = text_of(DDP_LAUNCHER_DOCS);
    for (const OptionSpec& spec : option_table()) EXPECT_THAT(docs, HasSubstr(spec.variable));
    EXPECT_THAT(docs, HasSubstr("PET_NPROC_PER_NODE"));
    for (const char* variable : {"RANK",
                                 "LOCAL_RANK",
                                 "ROLE_RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_WORLD_SIZE",
                                 "ROLE_WORLD_SIZE",
                                 "GROUP_RANK",
                                 "GROUP_WORLD_SIZE",
                                 "ROLE_NAME",
                                 "MASTER_ADDR",
                                 "MASTER_PORT",
                                 "TORCHELASTIC_RESTART_COUNT",
                                 "TORCHELASTIC_MAX_RESTARTS",
                                 "TORCHELASTIC_RUN_ID",
                                 "TORCHELASTIC_USE_AGENT_STORE",
                                 "TORCHELASTIC_ERROR_FILE",
                                 "TORCHELASTIC_SIGNALS_TO_HANDLE",
                                 "TORCH_NCCL_ASYNC_ERROR_HANDLING",
                                 "OMP_NUM_THREADS",
                                 "CUDA_VISIBLE_DEVICES",
                                 "DDP_CONTROL_FD",
                                 "DDP_CONTROL_PAGE",
                                 "PYTHON_EXEC"}) {
        EXPECT_THAT(docs, HasSubstr("`" + std::string(variable) + "`"));
    }
}

}  // namespace
}  // namespace ddp::launcher
