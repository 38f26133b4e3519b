// A worker with one verb a test: ends in a given way, prints, or shows what it was given. The first
// word chooses; "rank=R" before it makes only that rank do so, the others wait to be stopped.
#include <dirent.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

using Words = std::vector<std::string>;

std::string env(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

int word_as_int(const Words& words, std::size_t index) { return std::stoi(words.at(index)); }

void say_ready() {
    std::printf("ready %d\n", static_cast<int>(::getpid()));
    std::fflush(stdout);
}

int exit_with(const Words& words) { return word_as_int(words, 0); }

int raise_signal(const Words& words) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::raise(word_as_int(words, 0));
    return 99;  // the signal was ignored
}

int print_env(const Words& words) {
    for (const std::string& name : words) {
        const char* value = std::getenv(name.c_str());
        std::printf("%s=%s\n", name.c_str(), value != nullptr ? value : "<unset>");
    }
    return 0;
}

int print_arguments(const Words& words) {
    for (const std::string& word : words) std::printf("[%s]\n", word.c_str());
    return 0;
}

// COUNT lines on stdout, and on stderr unless "out" says not to, in pieces that do not end where
// lines end, unless "whole" follows.
int many_lines(const Words& words) {
    const int count = word_as_int(words, 0);
    std::string text;
    for (int i = 0; i < count; ++i) {
        text += "rank " + env("RANK") + " line " + std::to_string(i) + "\n";
    }
    const bool only_out = words.size() > 1 && words[1] == "out";
    constexpr std::size_t piece = 1000;
    const bool whole = words.size() > 2 && words[2] == "whole";  // no write ends within a line
    for (std::size_t start = 0, end = 0; start < text.size(); start = end) {
        end = start + piece;
        if (whole && end < text.size()) end = text.find('\n', end) + 1;
        const std::string part = text.substr(start, end - start);
        for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
            if (fd == STDERR_FILENO && only_out) continue;
            if (::write(fd, part.data(), part.size()) != static_cast<ssize_t>(part.size()))
                return 1;
        }
    }
    return 0;
}

// Prints "ready"; at SIGUSR1 COUNT lines on stdout.
int lines_at_signal(const Words& words) {
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &usr1, nullptr);
    say_ready();
    while (::sigwaitinfo(&usr1, nullptr) != SIGUSR1) {
    }
    return many_lines({words.at(0), "out"});
}

int print_bytes(const Words& words) {
    const std::string text(static_cast<std::size_t>(word_as_int(words, 0)), 'x');
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}

// "fd <number> -> <what it is>", and what else a fresh program has.
int show_surroundings(const Words&) {
    DIR* folder = ::opendir("/proc/self/fd");
    while (const dirent* entry = ::readdir(folder)) {
        const int fd = std::atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == ::dirfd(folder)) continue;
        char target[256] = {};
        const std::string path = std::string("/proc/self/fd/") + entry->d_name;
        if (::readlink(path.c_str(), target, sizeof target - 1) < 0) return 1;
        std::printf("fd %d -> %s\n", fd, target);
    }
    ::closedir(folder);
    sigset_t mask;
    ::sigprocmask(SIG_BLOCK, nullptr, &mask);
    for (int signal = 1; signal < 32; ++signal) {
        struct sigaction action {};
        ::sigaction(signal, nullptr, &action);
        if (sigismember(&mask, signal) == 1) std::printf("blocked %d\n", signal);
        if (action.sa_handler != SIG_DFL) std::printf("changed %d\n", signal);
    }
    int death_signal = 0;
    ::prctl(PR_GET_PDEATHSIG, &death_signal);
    std::printf("group leader %s\n", ::getpgid(0) == ::getpid() ? "yes" : "no");
    std::printf("parent's session %s\n", ::getsid(0) == ::getsid(::getppid()) ? "yes" : "no");
    std::printf("death signal %d\n", death_signal);
    return 0;
}

// Prints "ready"; then prints each signal that it is sent, and ends with SIGTERM, SIGINT or SIGHUP.
int print_signals(const Words& words) {
    const bool stubborn = !words.empty() && words[0] == "stubborn";
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    say_ready();
    for (;;) {
        const int signal = ::sigwaitinfo(&all, nullptr);
        std::printf("got %d\n", signal);
        std::fflush(stdout);
        const bool ends = signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
        if (ends && !stubborn) return 0;
    }
}

int write_error_file(const Words& words) {
    std::FILE* file = std::fopen(env("TORCHELASTIC_ERROR_FILE").c_str(), "w");
    if (file == nullptr) return 99;
    std::fprintf(file, "{\"message\": {\"message\": \"%s\", \"extraInfo\": {%s}}}",
                 words.at(1).c_str(), words.size() > 2 ? words[2].c_str() : "");
    std::fclose(file);
    return word_as_int(words, 0);
}

// Looks at the control region by its documented layout: the abort word is the u32 at byte 24.
int wait_for_abort(const Words&) {
    const int fd = std::atoi(env("DDP_CONTROL_FD").c_str());
    void* const memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return 97;
    const auto* word = reinterpret_cast<const volatile std::uint32_t*>(memory) + 6;
    while (*word == 0) ::sched_yield();  // ends at the latest by the launcher's signal
    std::printf("abort word %u\n", *word);
    std::fflush(stdout);
    return write_error_file({"82", "gone", "\"peer\": " + std::to_string(*word - 1)});
}

// Shows a step and a rate as the runtime does: at bytes 8 and 16 of its page.
int publish_progress(const Words& words) {
    const int fd = std::atoi(env("DDP_CONTROL_FD").c_str());
    const off_t page = 4096 * (1 + static_cast<off_t>(std::stoi(env("LOCAL_RANK"))));
    void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, page);
    if (memory == MAP_FAILED) return 97;
    const std::int64_t step = word_as_int(words, 0);
    const double rate = word_as_int(words, 1);
    std::memcpy(static_cast<char*>(memory) + 8, &step, sizeof step);
    std::memcpy(static_cast<char*>(memory) + 16, &rate, sizeof rate);
    say_ready();
    for (;;) ::pause();
}

// Eight random bytes at every offset of the control region, header and all pages, again and again.
int scribble(const Words&) {
    const int fd = std::atoi(env("DDP_CONTROL_FD").c_str());
    struct stat status {};
    if (::fstat(fd, &status) != 0) return 97;
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return 97;
    std::uint64_t bits = 21;
    for (bool first = true;; first = false) {
        for (std::size_t offset = 0; offset + sizeof bits <= bytes; ++offset) {
            bits = bits * 6364136223846793005U + 1442695040888963407U;
            std::memcpy(static_cast<char*>(memory) + offset, &bits, sizeof bits);
        }
        if (first) say_ready();
    }
}

// An error file that is deep or long beyond reason: KIND, and the code to end with.
int write_odd_error_file(const Words& words) {
    std::FILE* file = std::fopen(env("TORCHELASTIC_ERROR_FILE").c_str(), "w");
    if (file == nullptr) return 99;
    std::string text = R"({"message":"x","timestamp":)";
    if (words.at(0) == "deep") text += std::string(1'000'000, '[') + std::string(1'000'000, ']');
    // Within the first MiB, which is read.
    if (words.at(0) == "less_deep") text += std::string(400'000, '[') + std::string(400'000, ']');
    text += "}";
    std::fwrite(text.data(), 1, text.size(), file);
    std::fflush(file);
    if (words.at(0) == "long" && ::ftruncate(::fileno(file), off_t{1} << 30) != 0) return 99;
    std::fclose(file);
    return word_as_int(words, 1);
}

// As with DDP_BREAK_ON_FAILURE=1: an error file with a text of so many bytes, then SIGSTOP.
int hold_with_error(const Words& words) {
    std::FILE* file = std::fopen(env("TORCHELASTIC_ERROR_FILE").c_str(), "w");
    if (file == nullptr) return 99;
    const std::string text(static_cast<std::size_t>(word_as_int(words, 0)), 'x');
    std::fprintf(file, "{\"message\": \"%s\"}", text.c_str());
    std::fclose(file);
    say_ready();
    std::raise(SIGSTOP);
    return 0;
}

// As programs do that never heard of pipes: no flush, and more to do.
int print_and_wait(const Words& words) {
    for (const std::string& word : words) std::printf("%s\n", word.c_str());
    for (;;) ::pause();
}

// What kind of terminal there is.
int show_terminal(const Words&) {
    winsize size{};
    ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    std::printf("terminals %d%d%d, %d x %d, controlling %s\n", ::isatty(0), ::isatty(1),
                ::isatty(2), size.ws_col, size.ws_row,
                ::tcgetsid(STDOUT_FILENO) == ::getpid() ? "yes" : "no");
    std::fflush(stdout);
    std::fprintf(stderr, "on stderr\n");
    return 0;
}

// Leaves a child behind that keeps stdout open and would live for long.
int leave_child(const Words&) {
    if (::fork() == 0) {
        ::setsid();
        for (;;) ::pause();
    }
    std::printf("left a child\n");
    return 0;
}

int wait_forever(const Words&) {
    say_ready();
    for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
    static const std::map<std::string, int (*)(const Words&)> verbs{
        {"exit_with", exit_with},
        {"raise_signal", raise_signal},
        {"print_env", print_env},
        {"print_arguments", print_arguments},
        {"many_lines", many_lines},
        {"lines_at_signal", lines_at_signal},
        {"print_bytes", print_bytes},
        {"show_surroundings", show_surroundings},
        {"print_signals", print_signals},
        {"wait_for_abort", wait_for_abort},
        {"publish_progress", publish_progress},
        {"scribble", scribble},
        {"write_odd_error_file", write_odd_error_file},
        {"hold_with_error", hold_with_error},
        {"print_and_wait", print_and_wait},
        {"show_terminal", show_terminal},
        {"write_error_file", write_error_file},
        {"leave_child", leave_child},
        {"wait_forever", wait_forever},
    };
    Words words(argv + 1, argv + argc);
    if (!words.empty() && words[0].rfind("rank=", 0) == 0) {
        if (words[0].substr(5) != env("RANK")) return wait_forever({});
        words.erase(words.begin());
    }
    const auto verb = words.empty() ? verbs.end() : verbs.find(words[0]);
    if (verb == verbs.end()) {
        std::fprintf(stderr, "plain_worker: unknown verb\n");
        return 98;
    }
    words.erase(words.begin());
    return verb->second(words);
}
