// One object for the whole process, made before main: a worker must be known as one before it runs
// anything of the program.
#include "launch/worker_call.hpp"

#include "contract/error_file.hpp"
#include "contract/exit_code.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace ddp::launching {
namespace {

std::string own_file() {
    struct stat status {};
    if (::stat("/proc/self/exe", &status) != 0) return "?";
    return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

struct Target {
    CallName call;
    pid_t worker;
};

std::string describe(const CallName& call) {
    return call.scope + " number " + std::to_string(call.number) + " at " + call.location;
}

std::optional<Target> target_from_environment() {
    const char* value = std::getenv(worker_call_variable);
    if (value == nullptr) return std::nullopt;
    char* rest = nullptr;
    const long number = std::strtol(value, &rest, 10);
    const std::string file = ":" + own_file() + ":";
    const std::string_view words(rest);
    const std::size_t tab = words.rfind('\t');
    if (number < 1 || !words.starts_with(file) || tab == words.npos) return std::nullopt;
    const std::string scope(words.substr(file.size(), tab - file.size()));
    return Target{{scope, static_cast<int>(number), std::string(words.substr(tab + 1))},
                  ::getpid()};
}

void say(const std::string& text) {
    contract::write_error_file({.message = text});
    std::fprintf(stderr, "%s\n", text.c_str());
}

class WorkerCall {
public:
    WorkerCall() : target_(target_from_environment()) {
        if (target_) ::on_exit(&WorkerCall::check_at_exit, this);
    }
    Call note(const CallName& name);
    bool before() const { return target_ && !reached_; }
    bool inside() const { return reached_; }

private:
    [[noreturn]] void fail(const CallName& name);
    static void check_at_exit(int status, void* me);

    std::optional<Target> target_;
    std::atomic<bool> reached_{false};
};

Call WorkerCall::note(const CallName& name) {
    if (!before()) {
        return {CallKind::start, std::to_string(name.number) + ":" + own_file() + ":" + name.scope +
                                     "\t" + name.location};
    }
    const CallName& own = target_->call;
    if (name.scope != own.scope || name.number < own.number) return {CallKind::skip, {}};
    if (name.number > own.number || name.location != own.location) fail(name);
    reached_ = true;
    ::unsetenv(worker_call_variable);
    return {CallKind::body, {}};
}

void WorkerCall::fail(const CallName& name) {
    reached_ = true;  // enough is said
    say("launch: this worker came to " + describe(name) + "; it was started by number " +
        std::to_string(target_->call.number) + " at " + target_->call.location +
        ". The program must take the same way to it in a worker");
    std::exit(contract::exit_error);
}

void WorkerCall::check_at_exit(int status, void* me) {
    const WorkerCall& self = *static_cast<const WorkerCall*>(me);
    if (self.reached_ || ::getpid() != self.target_->worker) return;
    say("launch: this worker ended before it came to " + describe(self.target_->call) +
        ", by which it was started. The program must take the same way to it in a worker");
    std::fflush(nullptr);
    ::_exit(status != 0 ? status : contract::exit_error);
}

WorkerCall& worker_call() {
    static auto* const one = new WorkerCall;  // for ever: it is asked when all else is gone
    return *one;
}

[[maybe_unused]] const bool known_before_main = (worker_call(), true);

}  // namespace

std::string describe_location(const CallSite& where) {
    return std::string(where.file()) + ":" + std::to_string(where.line());
}

CallName next_launch(const CallSite& where) {
    static std::atomic<int> calls{0};
    return {"launch()", ++calls, describe_location(where)};
}

Call note_call(const CallName& name) { return worker_call().note(name); }

bool before_body() { return worker_call().before(); }

bool inside_body() { return worker_call().inside(); }

}  // namespace ddp::launching
