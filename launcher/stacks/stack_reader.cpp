#include "launcher/stacks/stack_reader.hpp"

#include "base/process/pidfd.hpp"
#include "launcher/process/forked_helper.hpp"
#include "launcher/stacks/python_stacks.hpp"
#include "launcher/stacks/stack_copy.hpp"
#include "launcher/stacks/unwinder.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <utility>

namespace ddp::launcher {
namespace {

using Wanted = StackReader::Wanted;
using Milliseconds = StackReader::Milliseconds;

constexpr Milliseconds pause{50};
constexpr std::size_t most_received = std::size_t{8} << 20;

void send_all(int socket, const std::string& text) {
    std::size_t sent = 0;
    while (sent < text.size()) {
        const ssize_t n = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (n <= 0 && errno != EINTR) throw SystemError("send stacks", errno);
        sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
}

void note_problem(std::string& all, const std::string& one) {
    if (!one.empty()) all += (all.empty() ? "" : "; ") + one;
}

RankStacks read_one(const Wanted& wanted, const StackCopy& copy) {
    RankStacks stacks{.rank = wanted.rank, .pid = wanted.pid, .problem = copy.problem()};
    if (stacks.problem.empty()) {
        std::string of_names;
        stacks.native = unwind(copy, of_names);
        note_problem(stacks.problem, of_names);
    }
    if (copy.threads() > copy.size()) {
        note_problem(stacks.problem, std::to_string(copy.size()) + " of its " +
                                         std::to_string(copy.threads()) + " threads");
    }
    std::string of_python;
    if (is_python(wanted.pid)) stacks.python = python_stacks_of(wanted.pid, of_python);
    note_problem(stacks.problem, of_python);
    return stacks;
}

// What is in a user's files and memory is read with that user's rights.
void become_owner_of(pid_t pid) {
    struct stat owner {};
    const std::string process = "/proc/" + std::to_string(pid);
    if (::geteuid() != 0 || ::stat(process.c_str(), &owner) != 0 || owner.st_uid == 0) return;
    if (::setgroups(0, nullptr) != 0 ||
        ::setresgid(owner.st_gid, owner.st_gid, owner.st_gid) != 0 ||
        ::setresuid(owner.st_uid, owner.st_uid, owner.st_uid) != 0) {
        throw SystemError("become the user whose process " + std::to_string(pid) + " is", errno);
    }
}

// In the child.
void read_all(int socket, const std::vector<Wanted>& wanted) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    const pid_t parent = ::getppid();
    std::vector<std::optional<StackCopy>> copies(wanted.size());
    std::string problem;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        try {
            copies[i].emplace(wanted[i].pid);
        } catch (const SystemError& error) {
            problem = error.what();
        }
    }
    become_owner_of(wanted.front().pid);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);  // a change of the user has cleared it
    if (::getppid() != parent) return;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        RankStacks stacks{.rank = wanted[i].rank, .pid = wanted[i].pid, .problem = problem};
        if (copies[i]) stacks = read_one(wanted[i], *copies[i]);
        copies[i].reset();
        send_all(socket, to_json({stacks}).dump(-1, ' ', true) + "\n");
    }
}

}  // namespace

void StackReader::begin(Time now, std::vector<Wanted> wanted, Milliseconds most) {
    if (is_reading() || wanted.empty()) return;
    ForkedHelper helper = fork_helper("ddp-stacks", "the reader of stacks", SOCK_STREAM,
                                      [&](int socket) { read_all(socket, wanted); });
    helper_ = helper.pid;
    pidfd_ = base::UniqueFd(base::open_pidfd(helper.pid));
    socket_ = std::move(helper.socket);
    ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
    received_.clear();
    wanted_ = std::move(wanted);
    until_ = now + most;
    next_ = now + pause;
}

// Whether it has said all.
bool StackReader::receive() {
    std::array<char, 65536> piece{};
    while (received_.size() < most_received) {
        const ssize_t n = ::recv(socket_.get(), piece.data(), piece.size(), 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
        if (n <= 0) return true;
        received_.append(piece.data(), static_cast<std::size_t>(n));
    }
    return true;
}

std::optional<std::vector<RankStacks>> StackReader::take(Time now) {
    if (!is_reading()) return std::nullopt;
    const bool is_complete = receive();
    if (!is_complete && now < until_) {
        next_ = now + pause;
        return std::nullopt;
    }
    end();
    std::vector<RankStacks> all;
    std::istringstream lines(received_);
    for (std::string line; std::getline(lines, line);) {
        const auto some = stacks_from_json(nlohmann::json::parse(line, nullptr, false));
        all.insert(all.end(), some.begin(), some.end());
    }
    for (const Wanted& one : wanted_) {
        if (std::ranges::find(all, one.rank, &RankStacks::rank) != all.end()) continue;
        all.push_back(
            {.rank = one.rank,
             .pid = one.pid,
             .problem = is_complete ? "what reads it has failed" : "the time for all was over"});
    }
    return all;
}

void StackReader::end() {
    if (!is_reading()) return;
    base::signal_pidfd(pidfd_.get(), SIGKILL);
    siginfo_t info{};  // what has not ended yet is left to who waits for any child
    ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info,
             WEXITED | WNOHANG);
    helper_ = 0;
    pidfd_.reset();
    socket_.reset();
    next_.reset();
}

}  // namespace ddp::launcher
