#include "base/process/process_tree.hpp"

#include "base/unique_fd.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

namespace ddp::base {
namespace {

std::string proc(pid_t pid, const char* what) {
    return "/proc/" + std::to_string(pid) + "/" + what;
}

// The next word of a line of numbers, as a number; 0 when it is none.
template <class Number>
Number next_number(std::string_view& line) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    Number number = 0;
    const auto end = std::from_chars(line.data(), line.data() + line.size(), number).ptr;
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    line.remove_prefix(std::min(line.find(' '), line.size()));
    return number;
}

// Not by a stream: to prepare the first one of a process takes longer than this.
std::string read_up_to(std::size_t most, const std::string& path) {
    std::string text;
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 1024> piece;
    for (ssize_t size = 1; file && size > 0 && text.size() < most;) {
        size = ::read(file.get(), piece.data(), std::min(piece.size(), most - text.size()));
        if (size > 0) text.append(piece.data(), static_cast<std::size_t>(size));
    }
    return text;
}

// For kernels without /proc/<pid>/task/<tid>/children.
std::vector<pid_t> children_by_scan(pid_t pid) {
    std::vector<pid_t> children;
    for (const std::string& name : names_in("/proc")) {
        pid_t child = 0;
        const auto result = std::from_chars(name.data(), name.data() + name.size(), child);
        if (result.ptr != name.data() + name.size()) continue;
        const auto stat = stat_of(child);
        if (stat && stat->parent == pid) children.push_back(child);
    }
    return children;
}

bool kernel_lists_children() {
    static const bool answer = ::access("/proc/thread-self/children", R_OK) == 0;
    return answer;
}

constexpr int max_depth = 64;

bool any_descendant(pid_t pid, const std::function<bool(pid_t)>& look, int depth) {
    if (depth == max_depth) return false;
    for (const pid_t child : children_of(pid)) {
        if (look(child) || any_descendant(child, look, depth + 1)) return true;
    }
    return false;
}

}  // namespace

std::string read_small_file(const std::string& path, std::size_t most) {
    return read_up_to(most, path);
}

std::string_view text_behind(std::string_view label, std::string_view text) {
    const std::size_t at = text.find(label);
    if (at == text.npos) return {};
    text.remove_prefix(at + label.size());
    text = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    return text;
}

std::optional<std::uint64_t> number_behind(std::string_view label, std::string_view text) {
    const std::string_view digits = text_behind(label, text);
    std::uint64_t number = 0;
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return problem == std::errc{} ? std::optional(number) : std::nullopt;
}

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), &::closedir);
    if (!entries) return names;
    while (const dirent* entry = ::readdir(entries.get())) {
        if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    return names;
}

// "pid (any name) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt, 4 times,
// priority nice threads 0 starttime ..."
std::optional<ProcessStat> stat_of(pid_t pid) {
    const std::string text = read_small_file(proc(pid, "stat"));
    const std::size_t name = text.find('(');
    const std::size_t after_name = text.rfind(')');
    if (name == text.npos || after_name == text.npos || after_name + 4 >= text.size()) {
        return std::nullopt;
    }
    ProcessStat stat;
    stat.name = text.substr(name + 1, after_name - name - 1);
    stat.state = text[after_name + 2];
    std::string_view rest = std::string_view(text).substr(after_name + 4);
    stat.parent = next_number<pid_t>(rest);
    next_number<pid_t>(rest);
    stat.session = next_number<pid_t>(rest);
    constexpr int fields_before_faults = 5;
    for (int i = 0; i < fields_before_faults; ++i) next_number<std::int64_t>(rest);
    stat.major_faults = next_number<std::uint64_t>(rest);
    next_number<std::int64_t>(rest);
    stat.cpu_ticks = next_number<std::uint64_t>(rest);
    stat.cpu_ticks += next_number<std::uint64_t>(rest);
    constexpr int fields_before_start = 6;
    for (int i = 0; i < fields_before_start; ++i) next_number<std::int64_t>(rest);
    stat.started = next_number<std::uint64_t>(rest);
    return stat;
}

std::vector<pid_t> children_of(pid_t pid) {
    if (!kernel_lists_children()) return children_by_scan(pid);
    std::vector<pid_t> children;
    const std::string tasks = proc(pid, "task");
    for (const std::string& task : names_in(tasks)) {
        const std::string list = read_up_to(std::string::npos, tasks + "/" + task + "/children");
        std::string_view rest = list;
        while (const auto child = next_number<pid_t>(rest)) children.push_back(child);
    }
    return children;
}

bool any_descendant(pid_t pid, const std::function<bool(pid_t)>& look) {
    return any_descendant(pid, look, 0);
}

bool descends_from(pid_t pid, pid_t ancestor) {
    for (int depth = 0; depth < max_depth; ++depth) {
        const auto stat = stat_of(pid);
        if (!stat || stat->parent <= 0) return false;
        if (stat->parent == ancestor) return true;
        pid = stat->parent;
    }
    return false;
}

std::optional<bool> holds_socket(pid_t pid, ino_t inode) {
    const std::string folder = proc(pid, "fd");
    if (::faccessat(AT_FDCWD, folder.c_str(), R_OK | X_OK, AT_EACCESS) != 0) return std::nullopt;
    bool hidden = false;  // a root without CAP_SYS_PTRACE sees the names, not what they are
    const std::string wanted = "socket:[" + std::to_string(inode) + "]";
    std::array<char, 64> link;
    for (const std::string& name : names_in(folder)) {
        const ssize_t size = ::readlink((folder + "/" + name).c_str(), link.data(), link.size());
        if (size < 0 && (errno == EACCES || errno == EPERM)) hidden = true;
        if (size > 0 && std::string_view(link.data(), static_cast<std::size_t>(size)) == wanted) {
            return true;
        }
    }
    return hidden ? std::nullopt : std::optional(false);
}

void for_each_mapping(const std::string& process, const std::function<bool(const Mapping&)>& take) {
    std::ifstream maps("/proc/" + process + "/maps");
    for (std::string line; std::getline(maps, line);) {
        // "7f3f4a000000-7f3f4a021000 r-xp 00000000 fe:01 1234   /usr/lib/libc.so.6"
        std::istringstream fields(line);
        Mapping one;
        char dash = 0;
        std::string device;
        std::string inode;
        fields >> std::hex >> one.begin >> dash >> one.end >> one.access >> one.offset >> device >>
            inode >> std::ws;
        if (!fields && !fields.eof()) continue;
        std::getline(fields, one.path);
        if (!take(one)) return;
    }
}

}  // namespace ddp::base
