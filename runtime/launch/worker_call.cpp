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

std::string place_of(const std::source_location& where) {
    return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

std::string own_file() {
    struct stat status {};
    if (::stat("/proc/self/exe", &status) != 0) return "?";
    return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

struct Target {
    int number;
    std::string place;
    pid_t worker;
};

std::optional<Target> target_from_environment() {
    const char* value = std::getenv(worker_call_variable);
    if (value == nullptr) return std::nullopt;
    char* rest = nullptr;
    const long number = std::strtol(value, &rest, 10);
    const std::string file = ":" + own_file() + ":";
    if (number < 1 || !std::string_view(rest).starts_with(file)) return std::nullopt;
    return Target{static_cast<int>(number), rest + file.size(), ::getpid()};
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
    Call note(const std::source_location& where);
    bool inside() const { return reached_; }

private:
    [[noreturn]] void fail(int number, const std::string& place);
    static void check_at_exit(int status, void* me);

    std::optional<Target> target_;
    std::atomic<int> calls_{0};
    std::atomic<bool> reached_{false};
};

Call WorkerCall::note(const std::source_location& where) {
    const int number = ++calls_;
    const std::string place = place_of(where);
    if (!target_ || reached_) {
        return {CallKind::start, std::to_string(number) + ":" + own_file() + ":" + place};
    }
    if (number < target_->number) return {CallKind::skip, {}};
    if (number > target_->number || place != target_->place) fail(number, place);
    reached_ = true;
    ::unsetenv(worker_call_variable);
    return {CallKind::body, {}};
}

void WorkerCall::fail(int number, const std::string& place) {
    reached_ = true;  // enough is said
    say("launch: this worker came to launch() number " + std::to_string(number) + " at " + place +
        "; it was started by number " + std::to_string(target_->number) + " at " + target_->place +
        ". The program must take the same way to it in a worker");
    std::exit(contract::exit_error);
}

void WorkerCall::check_at_exit(int status, void* me) {
    const WorkerCall& self = *static_cast<const WorkerCall*>(me);
    if (self.reached_ || ::getpid() != self.target_->worker) return;
    say("launch: this worker ended before it came to launch() number " +
        std::to_string(self.target_->number) + " at " + self.target_->place +
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

Call note_call(const std::source_location& where) { return worker_call().note(where); }

bool inside_body() { return worker_call().inside(); }

}  // namespace ddp::launching
