#include "support/host_program.hpp"

#include "base/deadline.hpp"
#include "support/program_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace ddp::testing {
namespace {

constexpr int body_threw = 99;
constexpr int no_such_program = 127;

void close_all_but(int fd) {
    if (fd > 3) ::close_range(3, static_cast<unsigned>(fd) - 1, 0);
    ::close_range(static_cast<unsigned>(fd) + 1, UINT_MAX, 0);
}

void send_number(int fd, int number) {
    if (::write(fd, &number, sizeof number) != sizeof number) ::_exit(1);  // the test is gone
}

// False: whoever should send it is gone, or `at_most` is over.
bool receive_number(int fd, int& number, std::chrono::milliseconds at_most) {
    pollfd entry{fd, POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(at_most.count()));
    return ::read(fd, &number, sizeof number) == sizeof number;
}

int waited_for(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

}  // namespace

HostProgram::Stream HostProgram::make_stream() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

HostProgram::HostProgram(const std::function<bool()>& enter, const std::function<int()>& body) {
    std::fflush(nullptr);  // else the children write it once more
    const pid_t test = ::getpid();
    between_ = ::fork();
    if (between_ < 0) throw std::runtime_error("fork");
    if (between_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != test) ::_exit(1);
        stand_between(enter, body, report_.write_end.get());
    }
    report_.write_end.reset();
    out_.write_end.reset();
    err_.write_end.reset();
    if (!receive_number(report_.read_end.get(), pid_, patience) || pid_ < 0) {
        const std::string reason = pid_ < 0 ? std::strerror(-pid_) : "it has ended";
        waited_for(std::exchange(between_, -1));
        throw std::runtime_error("cannot start a program in other namespaces: " + reason);
    }
    for (const int fd : {out_.read_end.get(), err_.read_end.get(), in_.write_end.get()}) {
        ::fcntl(fd, F_SETFL, O_NONBLOCK);
    }
}

HostProgram::HostProgram(HostProgram&& other) noexcept
    : between_(std::exchange(other.between_, -1)),
      pid_(other.pid_),
      in_(std::move(other.in_)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)),
      report_(std::move(other.report_)),
      result_(std::move(other.result_)) {}

HostProgram::~HostProgram() {
    if (ended()) return;
    signal(SIGKILL);
    take_end();
}

void HostProgram::stand_between(const std::function<bool()>& enter,
                                const std::function<int()>& body, int report) {
    std::error_code ignored;
    const auto folder = std::filesystem::current_path(ignored);
    if (!enter()) {
        send_number(report, errno > 0 ? -errno : -EPERM);
        ::_exit(1);
    }
    std::filesystem::current_path(folder, ignored);  // another mount namespace begins at its root
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);              // another user namespace forgets it
    const pid_t self = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) become(body, self);
    close_all_but(report);
    send_number(report, child > 0 ? child : -errno);
    if (child > 0) send_number(report, waited_for(child));
    ::_exit(0);
}

void HostProgram::become(const std::function<int()>& body, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const pid_t parent_now = ::getppid();  // 0: in another PID namespace
    if (parent_now != parent && parent_now != 0) ::_exit(1);
    ::setsid();
    ::dup2(in_.read_end.get(), STDIN_FILENO);
    ::dup2(out_.write_end.get(), STDOUT_FILENO);
    ::dup2(err_.write_end.get(), STDERR_FILENO);
    ::close_range(3, UINT_MAX, 0);
    int code = body_threw;
    try {
        code = body();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "threw: %s\n", error.what());
    }
    std::fflush(nullptr);
    ::_exit(code);
}

std::function<int()> HostProgram::execute(Words words, Words environment) {
    return [words = std::move(words), environment = std::move(environment)]() mutable {
        for (std::string& entry : environment) ::putenv(entry.data());
        const char* const path = std::getenv("PATH");
        std::string folders = path == nullptr ? "/usr/bin:/bin" : path;
        // For the search alone: the program gets PATH as it was.
        folders += ":/usr/sbin:/sbin";
        std::vector<char*> pointers;
        for (std::string& word : words) pointers.push_back(word.data());
        pointers.push_back(nullptr);
        if (words.at(0).find('/') != std::string::npos) ::execv(pointers[0], pointers.data());
        for (std::size_t from = 0; from < folders.size();) {
            const std::size_t to = std::min(folders.find(':', from), folders.size());
            const std::string file = folders.substr(from, to - from) + "/" + words[0];
            ::execv(file.c_str(), pointers.data());
            from = to + 1;
        }
        std::fprintf(stderr, "%s: %s\n", pointers[0], std::strerror(errno));
        return no_such_program;
    };
}

void HostProgram::signal(int signal) const {
    if (!ended()) ::kill(pid_, signal);
}

void HostProgram::write(const std::string& text) {
    const auto deadline = base::Deadline::after(patience);
    for (std::size_t done = 0; done < text.size();) {
        pollfd entry{in_.write_end.get(), POLLOUT, 0};
        ::poll(&entry, 1, deadline.poll_timeout(Milliseconds{10}));
        collect(Milliseconds{0});  // it may wait for a reader of what it has written
        const ssize_t put = ::write(in_.write_end.get(), text.data() + done, text.size() - done);
        if (put > 0) done += static_cast<std::size_t>(put);
        if (deadline.passed()) throw std::runtime_error("nobody reads this program's stdin");
    }
}

void HostProgram::close_input() {
    in_.write_end.reset();
    in_.read_end.reset();
}

bool HostProgram::wait_for_output(const std::string& text, int times) {
    return wait_for(text, times, out_.read_end, result_.out);
}

bool HostProgram::wait_for_error(const std::string& text, int times) {
    return wait_for(text, times, err_.read_end, result_.err);
}

bool HostProgram::wait_for(const std::string& text, int times, const base::UniqueFd& fd,
                           const std::string& held) {
    const auto deadline = base::Deadline::after(patience);
    while (count_of(held, text) < times) {
        if (deadline.passed() || !fd) return false;
        const bool last_look = ended();
        collect(last_look ? Milliseconds{0} : deadline.left());
        if (last_look && count_of(held, text) < times) return false;
    }
    return true;
}

HostProgramResult HostProgram::wait(Milliseconds at_most) {
    const auto deadline = base::Deadline::after(at_most);
    while (!ended() && !deadline.passed()) collect(deadline.left());
    if (out_.read_end) read_into(out_.read_end, result_.out);  // what it wrote last
    if (err_.read_end) read_into(err_.read_end, result_.err);
    return result_;
}

// Until something happens: output, or the end.
void HostProgram::collect(Milliseconds at_most) {
    std::array<pollfd, 3> entries{{{ended() ? -1 : report_.read_end.get(), POLLIN, 0},
                                   {out_.read_end.get(), POLLIN, 0},
                                   {err_.read_end.get(), POLLIN, 0}}};
    ::poll(entries.data(), entries.size(), static_cast<int>(at_most.count()));
    if (entries[0].revents != 0) take_end();
    if (entries[1].revents != 0) read_into(out_.read_end, result_.out);
    if (entries[2].revents != 0) read_into(err_.read_end, result_.err);
}

void HostProgram::take_end() {
    int status = 0;
    if (receive_number(report_.read_end.get(), status, patience)) {
        result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    waited_for(std::exchange(between_, -1));
}

}  // namespace ddp::testing
