#include "launcher/front/remote_shell.hpp"

#include "contract/exit_code.hpp"
#include "launcher/process/signals.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

namespace ddp::launcher {
namespace {

struct ShellPipe {
    base::UniqueFd read_end;
    base::UniqueFd write_end;
};

ShellPipe make_shell_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("pipe for --rsh", errno);
    return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

void make_nonblocking(const base::UniqueFd& fd) {
    if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) throw SystemError("fcntl of a pipe", errno);
}

[[noreturn]] void become_shell(const std::vector<std::string>& words, pid_t parent,
                               const std::array<int, 3>& streams) {
    for (int fd = 0; fd < static_cast<int>(streams.size()); ++fd) {
        ::dup2(streams[static_cast<std::size_t>(fd)], fd);
    }
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(contract::exit_error);
    reset_signals(ignored_signals());
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    ::execvp(pointers[0], pointers.data());
    std::fprintf(stderr, "cannot run %s: %s\n", pointers[0], std::strerror(errno));
    std::fflush(stderr);
    ::_exit(contract::exit_not_found);
}

}  // namespace

RemoteShell::RemoteShell(const std::vector<std::string>& words) {
    ShellPipe in = make_shell_pipe();
    ShellPipe out = make_shell_pipe();
    ShellPipe err = make_shell_pipe();
    for (const base::UniqueFd* fd : {&in.write_end, &out.read_end, &err.read_end}) {
        make_nonblocking(*fd);
    }
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw SystemError("fork for --rsh", errno);
    if (pid_ == 0) {
        become_shell(words, parent, {in.read_end.get(), out.write_end.get(), err.write_end.get()});
    }
    input_ = std::move(in.write_end);
    out_ = std::move(out.read_end);
    err_ = std::move(err.read_end);
}

RemoteShell::~RemoteShell() {
    if (end_) return;
    signal(SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void RemoteShell::send(std::string_view bytes) {
    if (!input_) return;
    queue_.append(bytes);
    flush();
}

void RemoteShell::flush() {
    while (wants_to_send()) {
        const ssize_t put = ::write(input_.get(), queue_.data() + sent_, queue_.size() - sent_);
        if (put > 0) {
            sent_ += static_cast<std::size_t>(put);
        } else if (errno != EINTR) {
            if (errno != EAGAIN) close_input();  // it does not read any more
            return;
        }
    }
    queue_.clear();
    sent_ = 0;
}

std::string RemoteShell::read(Stream stream) {
    base::UniqueFd& fd = output_of(stream);
    if (!fd) return {};
    std::array<char, max_read_bytes> bytes;
    const ssize_t got = ::read(fd.get(), bytes.data(), bytes.size());
    if (got > 0) return {bytes.data(), static_cast<std::size_t>(got)};
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) fd.reset();
    return {};
}

void RemoteShell::look_for_end() {
    siginfo_t info{};
    const auto id = static_cast<id_t>(pid_);
    if (!end_ && ::waitid(P_PID, id, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
        end_ = exit_status_of(info);
    }
}

void RemoteShell::signal(int signal) const {
    if (!end_) ::kill(pid_, signal);
}

}  // namespace ddp::launcher
