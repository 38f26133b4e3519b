#include "launcher/stacks/stack_reader.hpp"

#include "base/process/pidfd.hpp"
#include "base/process/process_tree.hpp"
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
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

using Wanted = StackReader::Wanted;
using Whom = StackReader::Whom;
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
        stacks.has_all_native =
            of_names.empty() && copy.threads() <= copy.size() && copy.misses_none();
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

struct Owner {
    uid_t user = 0;
    gid_t group = 0;
};
std::optional<Owner> owner_of(pid_t pid) {
    struct stat status {};
    if (::stat(("/proc/" + std::to_string(pid)).c_str(), &status) != 0) return std::nullopt;
    return Owner{status.st_uid, status.st_gid};
}

// What is in a user's files and memory is read with that user's rights.
void become(const Owner& owner) {
    if (::geteuid() != 0 || owner.user == 0) return;
    if (::setgroups(0, nullptr) != 0 || ::setresgid(owner.group, owner.group, owner.group) != 0 ||
        ::setresuid(owner.user, owner.user, owner.user) != 0) {
        throw SystemError("become the user " + std::to_string(owner.user), errno);
    }
}

// Names of which there is one in the mappings of who may wait in a collective that is known.
bool may_communicate(pid_t pid) {
    constexpr std::array<std::string_view, 4> libraries{"/libtorch", "/libgloo", "/libmpi",
                                                        "/libnccl"};
    bool has_one = false;
    base::for_each_mapping(std::to_string(pid), [&](const base::Mapping& mapping) {
        const auto has = [&](std::string_view name) {
            return mapping.path.find(name) != name.npos;
        };
        has_one = std::ranges::any_of(libraries, has);
        return !has_one;
    });
    return has_one;
}

struct Copied {
    Wanted wanted;
    std::optional<Owner> owner = {};
    std::optional<StackCopy> copy = {};
    std::string problem = {};
};

Copied copy_of(const Wanted& wanted) {
    Copied copied{.wanted = wanted, .owner = owner_of(wanted.pid)};
    try {
        copied.copy.emplace(wanted.pid);
    } catch (const SystemError& error) {
        copied.problem = error.what();
    }
    if (!copied.owner) copied.problem = "the process has ended";
    return copied;
}

// In the child.
void read_all(int socket, const std::vector<Wanted>& wanted, Whom whom) {
    const pid_t parent = ::getppid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    const auto may = [](const Wanted& one) { return may_communicate(one.pid); };
    if (whom == Whom::who_may_communicate && std::ranges::none_of(wanted, may)) {
        std::vector<RankStacks> none;  // and nothing is wrong with that
        for (const Wanted& one : wanted) none.push_back({.rank = one.rank, .pid = one.pid});
        return send_all(socket, to_json(none).dump(-1, ' ', true) + "\n");
    }
    std::vector<Copied> all;
    all.reserve(wanted.size());
    for (const Wanted& one : wanted) all.push_back(copy_of(one));
    const auto first =
        std::ranges::find_if(all, [](const Copied& one) { return one.owner.has_value(); });
    if (first == all.end()) return;
    const Owner owner = *first->owner;
    become(owner);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);  // a change of the user has cleared it
    if (::getppid() != parent) return;
    for (Copied& one : all) {
        if (one.owner && one.owner->user != owner.user) one.problem = "it is another user's";
        RankStacks stacks{.rank = one.wanted.rank, .pid = one.wanted.pid, .problem = one.problem};
        if (one.problem.empty()) stacks = read_one(one.wanted, *one.copy);
        one.copy.reset();
        send_all(socket, to_json({stacks}).dump(-1, ' ', true) + "\n");
    }
}

}  // namespace

void StackReader::begin(Time now, std::vector<Wanted> wanted, Milliseconds most, Whom whom) {
    if (is_reading() || wanted.empty()) return;
    ForkedHelper helper = fork_helper("ddp-stacks", "the reader of stacks", SOCK_STREAM,
                                      [&](int socket) { read_all(socket, wanted, whom); });
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
