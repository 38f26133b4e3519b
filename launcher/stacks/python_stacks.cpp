#include "launcher/stacks/python_stacks.hpp"

#include "base/deadline.hpp"
#include "base/net/socket.hpp"
#include "base/printable.hpp"
#include "base/process/process_tree.hpp"
#include "base/unique_fd.hpp"
#include "contract/exit_code.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <string_view>

namespace ddp::launcher {
namespace {

using nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{4} << 20;

// py-spy makes the program stand still until it has read it, or waits for ever for a thread that
// cannot: one that is stopped, or in the kernel.
enum class Stops : bool { no, yes };
constexpr std::chrono::milliseconds time_for_py_spy{300};

bool stops_at_once(pid_t pid) {
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const std::string& tid : base::names_in(tasks)) {
        const auto stat = base::stat_of(std::atoi(tid.c_str()));
        if (stat && stat->state != 'S' && stat->state != 'R') return false;
    }
    return true;
}

[[noreturn]] void become_py_spy(pid_t pid, Stops stops, int out) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
    const std::string number = std::to_string(pid);
    const char* const how = stops == Stops::yes ? nullptr : "--nonblocking";
    ::execlp("py-spy", "py-spy", "dump", "--json", "--pid", number.c_str(), how, nullptr);
    ::_exit(contract::exit_not_found);
}

std::string read_until(int fd, const base::Deadline& deadline) {
    std::string text;
    std::array<char, 65536> piece{};
    while (text.size() < most_bytes && base::wait_readable(fd, deadline)) {
        const ssize_t n = ::read(fd, piece.data(), piece.size());
        if (n <= 0) break;
        text.append(piece.data(), static_cast<std::size_t>(n));
    }
    return text;
}

struct Dump {
    std::string text = {};
    bool is_absent = false;
};

Dump run_py_spy(pid_t pid, Stops stops) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
    const base::UniqueFd in(ends[0]);
    base::UniqueFd out(ends[1]);
    const pid_t child = ::fork();
    if (child == 0) become_py_spy(pid, stops, out.get());
    out.reset();
    if (child < 0) return {};
    Dump dump{.text = read_until(in.get(), base::Deadline::after(time_for_py_spy))};
    ::kill(child, SIGKILL);  // of one that has ended it is nobody else's number yet
    int status = 0;
    ::waitpid(child, &status, 0);
    // Old ones attach by SIGSTOP, which may still be on its way.
    if (WIFSIGNALED(status) && stops == Stops::yes) ::kill(pid, SIGCONT);
    dump.is_absent = WIFEXITED(status) && WEXITSTATUS(status) == contract::exit_not_found;
    return dump;
}

std::string frame_in(const json& frame) {
    const std::string name = base::printable(frame.value("name", std::string("?")));
    std::string file = frame.value("filename", std::string());
    file.erase(0, file.rfind('/') + 1);
    return name + " (" + base::printable(file) + ":" + std::to_string(frame.value("line", 0)) + ")";
}

bool is_programs_own(const json& frame) {
    const std::string path = frame.value("filename", std::string());
    constexpr std::array<std::string_view, 4> packages{"/site-packages/", "/dist-packages/",
                                                       "/lib/python3", "<frozen"};
    return std::ranges::none_of(
        packages, [&](std::string_view part) { return path.find(part) != path.npos; });
}

}  // namespace

bool is_python(pid_t pid) {
    std::array<char, 4096> target{};
    const std::string link = "/proc/" + std::to_string(pid) + "/exe";
    const ssize_t n = ::readlink(link.c_str(), target.data(), target.size());
    if (n <= 0) return false;
    const std::string_view path(target.data(), static_cast<std::size_t>(n));
    return path.substr(path.rfind('/') + 1).starts_with("python");
}

std::vector<ThreadStack> python_stacks_of(pid_t pid, std::string& problem) {
    const Dump dump = run_py_spy(pid, stops_at_once(pid) ? Stops::yes : Stops::no);
    std::vector<ThreadStack> threads = python_stacks_in(dump.text);
    if (threads.empty()) {
        problem = dump.is_absent
                      ? "py-spy is not on PATH (pip install py-spy): Python's own calls are "
                        "not shown"
                      : "py-spy cannot read the program: Python's own calls are not shown";
    }
    const auto main = std::ranges::find(threads, pid, &ThreadStack::tid);
    if (main != threads.end()) std::rotate(threads.begin(), main, main + 1);
    return threads;
}

std::vector<ThreadStack> python_stacks_in(const std::string& dump) {
    std::vector<ThreadStack> threads;
    try {
        for (const json& one : json::parse(dump)) {
            const json tid = one.value("os_thread_id", json());
            const json name = one.value("thread_name", json());
            ThreadStack& thread = threads.emplace_back(ThreadStack{
                .tid = tid.is_number_integer() ? tid.get<pid_t>() : 0,
                .name = name.is_string() ? base::printable(name.get<std::string>()) : ""});
            for (const json& frame : one.at("frames")) {
                if (thread.frames.size() >= ThreadStack::most_frames) break;
                thread.frames.push_back(frame_in(frame));
                if (thread.own_frame.empty() && is_programs_own(frame)) {
                    thread.own_frame = thread.frames.back();
                }
            }
        }
    } catch (const json::exception&) {
        return {};
    }
    return threads;
}

}  // namespace ddp::launcher
