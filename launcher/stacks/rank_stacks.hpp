// Where the threads of a rank are: what was read off its stacks, as JSON and as text.
#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace ddp::launcher {

struct ThreadStack {
    static constexpr std::size_t most_frames = 64;

    pid_t tid = 0;
    std::string name = {};                 // printable; may be empty
    std::vector<std::string> frames = {};  // innermost first: "load (loader.cpp:31)"
    // Of Python: the innermost one that is the program's own, and no package's; may be empty.
    std::string own_frame = {};
};

struct RankStacks {
    int rank = 0;
    pid_t pid = 0;
    std::vector<ThreadStack> python = {};  // of a Python program, where py-spy is
    std::vector<ThreadStack> native = {};  // the first thread first
    // All of its threads, by name: who is not among them is in none of the calls that are known.
    bool has_all_native = false;
    std::string problem = {};  // why there is nothing, or something is missing
};

// An array of objects: rank, pid, python, native (arrays of tid, name, frames, own_frame),
// has_all_native, problem.
nlohmann::json to_json(const std::vector<RankStacks>& all);
// Nothing of what is no such thing. What is there is printable, and not too long.
std::vector<RankStacks> stacks_from_json(const nlohmann::json& array);

// For who is told of a hang: "stack of rank 1 (pid 4711), which waits:" and a line for each call of
// its first thread; of Python, where that is known. `remark`: ", which waits"; may be empty.
std::string text_of_one(const RankStacks& stacks, const std::string& remark);
// All threads; those that stand at the same place together.
std::string text_of_all(const RankStacks& stacks);

}  // namespace ddp::launcher
