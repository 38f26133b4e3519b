// fork and exec with two pipes a program and one poll loop; each program leads a process group of
// its own, so that a launcher is killed together with its workers.
#include "examples/run_program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

namespace ddp::tests {

namespace {

using base::Deadline;
using base::UniqueFd;

struct Running {
    pid_t pid = -1;
    UniqueFd out;
    UniqueFd err;
    ProgramResult result;
};

struct Pipe {
    Pipe() {
        std::array<int, 2> fds{};
        if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
        read.reset(fds[0]);
        write.reset(fds[1]);
    }
    UniqueFd read;
    UniqueFd write;
};

std::vector<std::string> environment_of(const Program& program) {
    const std::set<std::string> job{"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_USE_AGENT_STORE",
                                    "DDP_CONTROL_FD",
                                    "DDP_CONTROL_PAGE"};
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string text = *variable;
        if (!job.contains(text.substr(0, text.find('=')))) variables.push_back(text);
    }
    for (const auto& [name, value] : program.environment) variables.push_back(name + "=" + value);
    return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& string : strings) pointers.push_back(string.data());
    pointers.push_back(nullptr);
    return pointers;
}

Running start(const Program& program) {
    auto words = program.command;
    auto variables = environment_of(program);
    const auto argv = pointers_to(words);
    const auto envp = pointers_to(variables);
    Pipe out;
    Pipe err;
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::setpgid(0, 0);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // when ctest kills the test
        ::dup2(out.write.get(), STDOUT_FILENO);
        ::dup2(err.write.get(), STDERR_FILENO);
        ::execve(argv[0], argv.data(), envp.data());
        ::_exit(127);
    }
    ::setpgid(pid, pid);
    return {pid, std::move(out.read), std::move(err.read), {}};
}

// Reads what is there; closes at the end of the file.
void drain(UniqueFd& fd, std::string& text) {
    std::array<char, 65536> piece{};
    const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
    if (got > 0) text.append(piece.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) fd.reset();
}

// Until all pipes are closed. False when the deadline passed before.
bool read_all(std::vector<Running>& programs, const Deadline& deadline) {
    for (;;) {
        std::vector<pollfd> polled;
        std::vector<std::pair<UniqueFd*, std::string*>> targets;
        for (Running& program : programs) {
            if (program.out) targets.emplace_back(&program.out, &program.result.out);
            if (program.err) targets.emplace_back(&program.err, &program.result.err);
        }
        if (targets.empty()) return true;
        for (const auto& [fd, text] : targets) polled.push_back({fd->get(), POLLIN, 0});
        const int ready = ::poll(polled.data(), polled.size(), deadline.poll_timeout());
        if (ready == 0) return false;
        for (std::size_t i = 0; ready > 0 && i < polled.size(); ++i) {
            if (polled[i].revents != 0) drain(*targets[i].first, *targets[i].second);
        }
    }
}

int exit_code_of(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A port that nobody has. Another program may take it before the rank does; then the test fails and
// says so.
std::string free_port() {
    const UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd.get(), generic, length) != 0 || ::getsockname(fd.get(), generic, &length) != 0) {
        throw std::runtime_error("no free port");
    }
    return std::to_string(ntohs(address.sin_port));
}

}  // namespace

std::vector<ProgramResult> run_programs(const std::vector<Program>& programs) {
    std::vector<Running> running;
    for (const Program& program : programs) running.push_back(start(program));
    if (!read_all(running, Deadline::after(std::chrono::minutes{1}))) {
        ADD_FAILURE() << programs.front().command.front() << " still runs after 1 min; killed";
        for (const Running& program : running) ::kill(-program.pid, SIGKILL);
    }
    std::vector<ProgramResult> results;
    for (Running& program : running) {
        program.result.exit_code = exit_code_of(program.pid);
        results.push_back(std::move(program.result));
    }
    return results;
}

ProgramResult run_program(const Command& command) { return run_programs({{command}}).front(); }

ProgramResult run_ranks_by_hand(int ranks, const Command& command) {
    const std::string port = free_port();
    std::vector<Program> programs;
    for (int rank = 0; rank < ranks; ++rank) {
        const std::string me = std::to_string(rank);
        const std::string all = std::to_string(ranks);
        programs.push_back({command,
                            {{"RANK", me},
                             {"WORLD_SIZE", all},
                             {"LOCAL_RANK", me},
                             {"LOCAL_WORLD_SIZE", all},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", port}}});
    }
    ProgramResult sum{0, {}, {}};
    for (const ProgramResult& result : run_programs(programs)) {
        if (sum.exit_code == 0) sum.exit_code = result.exit_code;
        sum.out += result.out;
        sum.err += result.err;
    }
    return sum;
}

ProgramResult run_ranks_of(int ranks, const Command& command) {
    const std::string launcher = DDP_LAUNCH;
    if (launcher.empty()) return run_ranks_by_hand(ranks, command);
    Command launched{launcher, "--nproc-per-node=" + std::to_string(ranks), "--"};
    launched.insert(launched.end(), command.begin(), command.end());
    // Said, or ddp-launch says on stderr what it has chosen.
    return run_programs({{launched, {{"OMP_NUM_THREADS", "1"}}}}).front();
}

std::string example(const std::string& name) { return DDP_EXAMPLES_DIR "/" + name; }

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream in{text};
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

}  // namespace ddp::tests
