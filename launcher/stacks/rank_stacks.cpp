#include "launcher/stacks/rank_stacks.hpp"

#include "base/printable.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace ddp::launcher {
namespace {

using nlohmann::json;

constexpr std::size_t most_lines = 16;
constexpr std::size_t most_letters = 240;  // of a text

json json_of(const std::vector<ThreadStack>& threads) {
    json array = json::array();
    for (const ThreadStack& thread : threads) {
        array.push_back({{"tid", thread.tid},
                         {"name", thread.name},
                         {"frames", thread.frames},
                         {"own_frame", thread.own_frame}});
    }
    return array;
}

std::string text_in(const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string()
               ? base::printable(found->get_ref<const std::string&>(), most_letters)
               : "";
}

int number_in(const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number_integer() ? found->get<int>() : 0;
}

template <class Take>
void for_each_object(const json& array, Take take) {
    if (!array.is_array()) return;
    for (const json& one : array) {
        if (one.is_object()) take(one);
    }
}

std::vector<ThreadStack> threads_in(const json& object, const char* name) {
    std::vector<ThreadStack> threads;
    const auto found = object.find(name);
    if (found == object.end()) return threads;
    for_each_object(*found, [&](const json& one) {
        ThreadStack& thread =
            threads.emplace_back(ThreadStack{.tid = number_in(one, "tid"),
                                             .name = text_in(one, "name"),
                                             .own_frame = text_in(one, "own_frame")});
        const auto frames = one.find("frames");
        if (frames == one.end() || !frames->is_array()) return;
        for (const json& frame : *frames) {
            if (!frame.is_string() || thread.frames.size() >= 2 * ThreadStack::most_frames)
                continue;
            thread.frames.push_back(
                base::printable(frame.get_ref<const std::string&>(), most_letters));
        }
    });
    return threads;
}

std::string text_of(const std::vector<std::string>& frames) {
    std::string text;
    for (const std::string& frame : frames) text += "\n    " + frame;
    return text;
}

// Of calls within this library the outermost is what its user has called, and the innermost are its
// own affair; those of the standard library that lie between others say nothing.
std::vector<std::string> told_shortly(const std::vector<std::string>& frames) {
    const auto is_own = [](const std::string& frame) {
        return frame.starts_with("ddp::") && !frame.starts_with("ddp::run_");
    };
    const auto first = std::ranges::find_if(frames, is_own);
    const auto last = std::find_if(frames.rbegin(), frames.rend(), is_own).base();
    std::vector<std::string> told(frames.begin(), first);
    if (first != frames.end()) {
        const auto inner = last - first - 1;
        if (inner > 0) told.push_back("... " + std::to_string(inner) + " within ddp");
        told.insert(told.end(), last - 1, frames.end());
    }
    std::erase_if(told, [&](const std::string& frame) {
        return frame.starts_with("std::") && &frame != &told.front();
    });
    const std::size_t count = told.size();
    if (count > most_lines) {
        told.resize(most_lines);
        told.push_back("... " + std::to_string(count - most_lines) + " more");
    }
    return told;
}

std::string begin_of(const RankStacks& stacks) {
    return "stack of rank " + std::to_string(stacks.rank) + " (pid " + std::to_string(stacks.pid) +
           ")";
}

std::string note_on(const RankStacks& stacks) {
    return stacks.problem.empty() ? "" : "\n    (" + stacks.problem + ")";
}

std::string text_of_group(const char* language, const std::vector<const ThreadStack*>& group) {
    const ThreadStack& first = *group.front();
    std::string text = "\n  " + std::string(language) + "thread " + std::to_string(first.tid);
    if (!first.name.empty()) text += " \"" + first.name + "\"";
    if (group.size() > 1) text += " and " + std::to_string(group.size() - 1) + " more";
    return text + ":" + text_of(first.frames);
}

std::string text_of_threads(const char* language, const std::vector<ThreadStack>& threads) {
    std::vector<std::vector<const ThreadStack*>> groups;
    for (const ThreadStack& thread : threads) {
        const auto same = std::ranges::find_if(
            groups, [&](const auto& group) { return group.front()->frames == thread.frames; });
        if (same != groups.end()) {
            same->push_back(&thread);
        } else {
            groups.push_back({&thread});
        }
    }
    std::string text;
    for (const auto& group : groups) text += text_of_group(language, group);
    return text;
}

}  // namespace

json to_json(const std::vector<RankStacks>& all) {
    json array = json::array();
    for (const RankStacks& one : all) {
        array.push_back({{"rank", one.rank},
                         {"pid", one.pid},
                         {"python", json_of(one.python)},
                         {"native", json_of(one.native)},
                         {"has_all_native", one.has_all_native},
                         {"problem", one.problem}});
    }
    return array;
}

std::vector<RankStacks> stacks_from_json(const json& array) {
    std::vector<RankStacks> all;
    for_each_object(array, [&](const json& one) {
        all.push_back({.rank = number_in(one, "rank"),
                       .pid = number_in(one, "pid"),
                       .python = threads_in(one, "python"),
                       .native = threads_in(one, "native"),
                       .has_all_native = one.value("has_all_native", json()) == true,
                       .problem = text_in(one, "problem")});
    });
    return all;
}

std::string text_of_one(const RankStacks& stacks, const std::string& remark) {
    const bool is_python = !stacks.python.empty();
    const std::vector<ThreadStack>& threads = is_python ? stacks.python : stacks.native;
    if (threads.empty()) return begin_of(stacks) + ": cannot be read: " + stacks.problem;
    const auto main = std::ranges::find(threads, stacks.pid, &ThreadStack::tid);
    const ThreadStack& shown = main != threads.end() ? *main : threads.front();
    const std::string thread =
        shown.tid == stacks.pid ? "" : ", thread " + std::to_string(shown.tid);
    std::string text = begin_of(stacks) + remark + (is_python ? ", in Python" : "") + thread + ":" +
                       text_of(told_shortly(shown.frames)) + note_on(stacks);
    if (threads.size() > 1) {
        text += "\n    and " + std::to_string(threads.size() - 1) +
                (threads.size() == 2 ? " more thread" : " more threads") +
                ": ddp-launch inspect --stacks";
    }
    return text;
}

std::string text_of_all(const RankStacks& stacks) {
    if (stacks.python.empty() && stacks.native.empty()) {
        return begin_of(stacks) + ": cannot be read: " + stacks.problem;
    }
    return begin_of(stacks) + ":" + note_on(stacks) + text_of_threads("Python, ", stacks.python) +
           text_of_threads("", stacks.native);
}

}  // namespace ddp::launcher
