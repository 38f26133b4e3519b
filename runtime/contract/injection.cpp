#include "contract/injection.hpp"

#include "base/log.hpp"
#include "base/process/process_tree.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace ddp::contract {
namespace {

using namespace std::chrono_literals;
using Fault = Injection::Fault;

constexpr std::array<std::pair<std::string_view, Fault>, 7> names{{{"kill", Fault::kill},
                                                                   {"stop", Fault::stop},
                                                                   {"exit", Fault::exit},
                                                                   {"delay", Fault::delay},
                                                                   {"slow", Fault::slow},
                                                                   {"oom", Fault::oom},
                                                                   {"mismatch", Fault::mismatch}}};
constexpr auto delay = 2s;

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
    throw UsageError("\"" + std::string(text) + "\": " + why +
                     "; as kill:rank=1@step=100, of kill, stop, exit, delay, slow, oom and "
                     "mismatch");
}

// The number behind `name` at the beginning of `rest`, which both leave.
template <class Number>
Number take_number(std::string_view& rest, std::string_view name, std::string_view text) {
    if (!rest.starts_with(name)) refuse(text, std::string(name) + " is missing");
    rest.remove_prefix(name.size());
    Number value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc{} || value < 0) {
        refuse(text, "no number from 0 on behind " + std::string(name));
    }
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return value;
}

void write_to(const char* path, std::string_view text) {
    const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
    ::close(fd);
}

// What the host can give at once; 0: not known.
std::uint64_t bytes_available() {
    constexpr std::string_view name = "MemAvailable:";
    const std::string info = base::read_small_file("/proc/meminfo", 4096);
    const std::size_t at = info.find(name);
    if (at == info.npos) return 0;
    return std::strtoull(info.c_str() + at + name.size(), nullptr, 10) * 1024;
}

// The kernel is to end this process and no other; and without a limit below what the host has it is
// not to be asked.
void take_memory() {
    constexpr std::uint64_t piece = std::uint64_t{16} << 20;
    constexpr std::uint64_t left_to_host = std::uint64_t{1} << 30;
    write_to("/proc/self/oom_score_adj", "1000");
    const std::uint64_t available = bytes_available();
    for (std::uint64_t taken = 0; taken + left_to_host < available; taken += piece) {
        void* const memory =
            ::mmap(nullptr, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) break;
        std::memset(memory, 1, piece);
    }
    base::log_error("contract",
                    "--inject=oom: no limit of memory has ended this process before all but 1 GiB "
                    "of the host's was taken; set one of its cgroup. It ends with 1");
    ::_exit(1);
}

}  // namespace

Injection parse_injection(std::string_view text) {
    const std::size_t colon = text.find(':');
    Injection injection;
    bool is_known = false;
    for (const auto& [name, fault] : names) {
        if (text.substr(0, colon) != name) continue;
        injection.fault = fault;
        is_known = true;
    }
    if (!is_known) refuse(text, "no such fault");
    std::string_view rest = colon == text.npos ? "" : text.substr(colon + 1);
    injection.rank = take_number<int>(rest, "rank=", text);
    injection.step = take_number<std::int64_t>(rest, "@step=", text);
    if (!rest.empty()) refuse(text, "\"" + std::string(rest) + "\" is too much");
    return injection;
}

Injector Injector::from_environment(int rank) noexcept {
    const char* const text = std::getenv(injection_variable);
    const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
    const bool is_first = restarts == nullptr || std::string_view(restarts) == "0";
    if (text == nullptr || !is_first) return Injector({});
    try {
        const Injection injection = parse_injection(text);
        return Injector(injection.rank == rank ? std::optional(injection) : std::nullopt);
    } catch (const UsageError& error) {
        base::log_error("contract", std::string(injection_variable) + ": " + error.what());
        return Injector({});
    }
}

bool Injector::act(const Injection& injection, std::int64_t step) noexcept {
    const auto now = std::chrono::steady_clock::now();
    if (!std::exchange(has_begun_, true)) {
        for (const auto& [name, fault] : names) {
            if (fault != injection.fault) continue;
            base::log_warn("contract",
                           "--inject: " + std::string(name) + " at step " + std::to_string(step));
        }
        last_step_ = now;
    }
    switch (injection.fault) {
        case Fault::kill:
            due_.reset();
            ::raise(SIGKILL);
            return false;
        case Fault::stop:
            due_.reset();
            ::raise(SIGSTOP);
            return false;
        case Fault::exit:
            ::_exit(1);
        case Fault::delay:
            due_.reset();
            std::this_thread::sleep_for(delay);
            return false;
        case Fault::slow:
            std::this_thread::sleep_for(now - last_step_);
            last_step_ = std::chrono::steady_clock::now();
            return false;
        case Fault::oom:
            take_memory();
            return false;
        case Fault::mismatch:
            due_.reset();
            return true;
    }
    return false;
}

}  // namespace ddp::contract
