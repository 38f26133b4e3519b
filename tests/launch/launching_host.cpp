// A program that launches itself, for launch_function_test: the first word chooses what it does.
#include <ddp/error.hpp>
#include <ddp/launch.hpp>
#include <ddp/process_group.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

bool in_worker() { return std::getenv("RANK") != nullptr; }

int show(const ddp::LaunchResult& result) {
    std::printf("exit code %d, report: %s\n", result.exit_code, result.report.c_str());
    return result.exit_code;
}

void say(const std::string& text) {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
}

const std::string rank() {
    const char* value = std::getenv("RANK");
    return value != nullptr ? value : "none";
}

int sum(const std::string& word) {
    return show(ddp::launch({.nproc_per_node = 3}, [&] {
        auto group = ddp::init_process_group();
        say("rank " + rank() + " sum " + std::to_string(group.all_reduce(group.rank())) + " word " +
            word);
    }));
}

int throws(const std::string&) {
    return show(ddp::launch({.nproc_per_node = 2}, [] {
        auto group = ddp::init_process_group();
        if (group.rank() == 1) throw std::runtime_error("no such data");
        group.barrier().wait();
    }));
}

int restarts(const std::string&) {
    return show(ddp::launch({.max_restarts = 2}, [] {
        const std::string count = std::getenv("TORCHELASTIC_RESTART_COUNT");
        say("attempt " + count);
        if (count != "1") throw std::runtime_error("not yet");
    }));
}

// Two functions and, between them, a command.
int several(const std::string&) {
    const auto first = ddp::launch({}, [] { say("first"); });
    if (!in_worker()) say("between");
    const auto second = ddp::launch({}, {"echo", "second"});
    const auto third = ddp::launch({}, [] { say("third"); });
    return first.exit_code + second.exit_code + show(third);
}

int other_way(const std::string&) {
    if (in_worker()) return show(ddp::launch({}, [] { say("a wrong body"); }));
    return show(ddp::launch({}, [] { say("never"); }));
}

int never_comes(const std::string&) {
    if (in_worker()) return 0;
    return show(ddp::launch({}, [] { say("never"); }));
}

int nested(const std::string&) {
    return show(ddp::launch({}, [] {
        try {
            static_cast<void>(ddp::launch({}, [] { say("never"); }));
        } catch (const ddp::UsageError& error) {
            say(error.what());
        }
        say("command " + std::to_string(ddp::launch({}, {"sh", "-c", "exit 5"}).exit_code));
    }));
}

int threads(const std::string&) {
    const std::jthread idle([](const std::stop_token& stop) {
        while (!stop.stop_requested()) std::this_thread::yield();
    });
    ddp::LaunchResult result;
    std::thread([&] {
        result = ddp::launch({.nproc_per_node = 2}, [] { say("rank " + rank()); });
    }).join();
    return show(result);
}

void reap_all(int) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
}

// The result is known all the same.
int reaped_by_others(const std::string& how) {
    if (in_worker()) {
    } else if (how == "handled") {
        ::signal(SIGCHLD, reap_all);
    } else {
        ::signal(SIGCHLD, SIG_IGN);
    }
    return show(ddp::launch({}, [] { throw std::runtime_error("on purpose"); }));
}

// Until it is killed, or its host is.
int waits(const std::string&) {
    return show(ddp::launch({.nproc_per_node = 2}, [] {
        if (::fork() == 0) ::setsid();
        say("ready");
        for (;;) ::pause();
    }));
}

volatile sig_atomic_t interrupted = 0;

int tidies_up(const std::string&) {
    if (!in_worker()) ::setpgid(0, 0);  // as a shell starts it
    return show(ddp::launch({.nproc_per_node = 2}, [] {
        ::signal(SIGINT, [](int) { interrupted = 1; });
        say("ready");
        while (interrupted == 0) ::usleep(1000);
        ::usleep(300'000);
        say("tidied up");
    }));
}

int replaced(const std::string& own_file) {
    if (!in_worker()) {
        std::filesystem::remove(own_file);
        std::filesystem::copy_file("/bin/false", own_file);
    }
    return show(ddp::launch({}, [] { say("the old one"); }));
}

int dies_in_body(const std::string&) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    return show(ddp::launch({.nproc_per_node = 2}, [] {
        if (rank() == "1") ::raise(SIGKILL);
        ::pause();
    }));
}

}  // namespace

int main(int argc, char** argv) {
    static const std::map<std::string, int (*)(const std::string&)> verbs{
        {"sum", sum},
        {"throws", throws},
        {"restarts", restarts},
        {"several", several},
        {"other_way", other_way},
        {"never_comes", never_comes},
        {"nested", nested},
        {"threads", threads},
        {"reaped_by_others", reaped_by_others},
        {"waits", waits},
        {"tidies_up", tidies_up},
        {"replaced", replaced},
        {"dies_in_body", dies_in_body},
    };
    return verbs.at(argc > 1 ? argv[1] : "")(argc > 2 ? argv[2] : "");
}
