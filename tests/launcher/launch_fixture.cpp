// One child, three descriptors, one poll(): the pidfd says when it ended, the pipes what it wrote.
#include "launcher/launch_fixture.hpp"

#include "base/process/process_tree.hpp"
#include "support/program_output.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <stdexcept>

namespace ddp::launcher::testing {
namespace {

namespace fs = std::filesystem;
using ddp::testing::count_of;
using ddp::testing::read_into;
using std::chrono::milliseconds;

struct Pipe {
    base::UniqueFd read_end;
    base::UniqueFd write_end;
};

Pipe make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

std::vector<char*> c_strings(std::vector<std::string>& words) {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
}

// Where jobs can be found (ddp-launch inspect), of all tests of this process.
const std::string& folder_of_runs() {
    static const TemporaryFolder folder;
    return folder.path();
}

std::vector<std::string> environment_of(const TemporaryFolder& folder,
                                        const std::vector<std::string>& more) {
    std::vector<std::string> result = more;
    const auto is_given = [&](const std::string& name) {
        return std::any_of(result.begin(), result.end(),
                           [&](const auto& given) { return given.starts_with(name); });
    };
    if (!is_given("TMPDIR=")) result.push_back("TMPDIR=" + folder.path());
    if (!is_given("XDG_RUNTIME_DIR=")) result.push_back("XDG_RUNTIME_DIR=" + folder_of_runs());
    // What a test says about stderr is not about the notice that threads are limited.
    if (!is_given("OMP_NUM_THREADS=")) result.push_back("OMP_NUM_THREADS=1");
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string inherited = *entry;
        if (!is_given(inherited.substr(0, inherited.find('=') + 1))) result.push_back(inherited);
    }
    return result;
}

}  // namespace

TemporaryFolder::TemporaryFolder() : path_(::testing::TempDir() + "ddp-test-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) {
        names.push_back(entry.path().filename());
    }
    return names;
}

Launch::Launch(const TemporaryFolder& folder, const Words& arguments, LaunchSettings settings)
    : settings_(std::move(settings)) {
    Words words{settings_.program.empty() ? DDP_LAUNCH : settings_.program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<std::string> environment = environment_of(folder, settings_.environment);
    const std::vector<char*> argv = c_strings(words);
    const std::vector<char*> envp = c_strings(environment);
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
        if (::chdir(folder.path().c_str()) != 0) ::_exit(96);
        ::dup2(out.write_end.get(), STDOUT_FILENO);
        ::dup2(err.write_end.get(), STDERR_FILENO);
        if (settings_.terminal >= 0) {
            ::dup2(settings_.terminal, STDOUT_FILENO);
            ::dup2(settings_.terminal, STDERR_FILENO);
        }
        ::dup2(STDERR_FILENO, 9);  // a stray descriptor, which workers must not get
        if (settings_.ignore_hangup) std::signal(SIGHUP, SIG_IGN);
        ::execve(argv[0], argv.data(), envp.data());
        ::_exit(95);
    }
    if (pid_ < 0) throw std::runtime_error("fork");
    pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    out_ = std::move(out.read_end);
    err_ = std::move(err.read_end);
}

Launch::~Launch() {
    if (ended_) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void Launch::signal(int signal) const { ::kill(pid_, signal); }

std::optional<pid_t> Launch::wait_for_agent() const {
    const auto deadline = base::Deadline::after(patience);
    while (!deadline.passed()) {
        // By name: the front's leak check has a child, too.
        for (const pid_t child : children_now(pid_)) {
            const auto stat = base::stat_of(child);
            if (stat && stat->name == "ddp-agent") return child;
        }
        pollfd entry{pidfd_.get(), POLLIN, 0};
        if (::poll(&entry, 1, 0) > 0) break;
    }
    return std::nullopt;
}

// Until something happens: output, or the end of the front.
void Launch::collect(milliseconds at_most) {
    const bool read = settings_.read_output;
    std::array<pollfd, 3> entries{{{ended_ ? -1 : pidfd_.get(), POLLIN, 0},
                                   {read ? out_.get() : -1, POLLIN, 0},
                                   {read ? err_.get() : -1, POLLIN, 0}}};
    ::poll(entries.data(), entries.size(), static_cast<int>(at_most.count()));
    if (entries[0].revents != 0) {
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
        ended_ = true;
        result_.exit_code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
        result_.time = std::chrono::ceil<milliseconds>(base::Deadline::Clock::now() - started_);
    }
    if (entries[1].revents != 0) read_into(out_, result_.out);
    if (entries[2].revents != 0) read_into(err_, result_.err);
}

bool Launch::wait_for_output(const std::string& text, int times) {
    const auto deadline = base::Deadline::after(patience);
    while (count_of(result_.out, text) < times) {
        if (deadline.passed() || (ended_ && !out_)) return false;
        collect(deadline.left());
    }
    return true;
}

bool Launch::wait_for_error(const std::string& text) {
    const auto deadline = base::Deadline::after(patience);
    while (count_of(result_.err, text) == 0) {
        if (deadline.passed() || (ended_ && !err_)) return false;
        collect(deadline.left());
    }
    return true;
}

// Asks the pipe itself: how many bytes fill it depends on how they were cut into writes.
bool Launch::wait_for_full_stdout() const {
    const std::string name = "/proc/self/fd/" + std::to_string(out_.get());
    const base::UniqueFd writer(::open(name.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    if (!writer) return false;
    const auto deadline = base::Deadline::after(patience);
    while (!deadline.passed()) {
        pollfd entry{writer.get(), POLLOUT, 0};
        if (::poll(&entry, 1, 0) == 0) return true;
        ::poll(nullptr, 0, 1);
    }
    return false;
}

LaunchResult Launch::wait(milliseconds at_most) {
    const auto deadline = base::Deadline::after(at_most);
    while (!ended_ && !deadline.passed()) collect(deadline.left());
    if (ended_) {  // what it wrote last
        if (out_) read_into(out_, result_.out);
        if (err_) read_into(err_, result_.err);
    }
    return result_;
}

LaunchResult LaunchTest::launch(const Launch::Words& arguments, LaunchSettings settings) {
    Launch launch(folder_, arguments, std::move(settings));
    return launch.wait();
}

Launch::Words LaunchTest::plain(Launch::Words options, const Launch::Words& worker) {
    options.emplace_back(DDP_TEST_WORKER);
    options.insert(options.end(), worker.begin(), worker.end());
    return options;
}

std::vector<pid_t> children_now(pid_t pid) {
    const std::string task = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid);
    std::ifstream file(task + "/children");
    return {std::istream_iterator<pid_t>(file), {}};
}

std::vector<pid_t> processes_with(const std::string& environment_entry) {
    std::vector<pid_t> found;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
    while (const dirent* entry = ::readdir(folder.get())) {
        const pid_t pid = std::atoi(entry->d_name);
        if (pid == 0) continue;
        std::ifstream file(std::string("/proc/") + entry->d_name + "/environ", std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const std::string wanted = '\0' + environment_entry + '\0';
        if (('\0' + text + '\0').find(wanted) != std::string::npos) found.push_back(pid);
    }
    return found;
}

bool pid_namespaces_are_allowed() {
    const auto works = [](const char* command) { return std::system(command) == 0; };
    return works("unshare --pid --fork --mount-proc true 2>/dev/null") ||
           works("unshare --user --pid --fork --mount-proc true 2>/dev/null");
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

}  // namespace ddp::launcher::testing
