#include "standin_nccl/knobs.hpp"

#include "standin_nccl/stand_in.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>

namespace stand_in {

namespace {
constexpr int misuse_code = 97;

[[noreturn]] void refuse(std::string_view name, std::string_view value) {
    std::fprintf(stderr, "stand-in NCCL: DDP_STAND_IN_%s: what is '%s'?\n",
                 std::string(name).c_str(), std::string(value).c_str());
    std::abort();
}

std::int64_t number(std::string_view name, std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < 0) refuse(name, text);
    return value;
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

Fault parse_fault(const std::string& text) {
    static const std::map<std::string_view, FaultKind> kinds{{"die", FaultKind::die},
                                                             {"hang", FaultKind::hang},
                                                             {"error", FaultKind::error},
                                                             {"fail", FaultKind::fail}};
    const std::vector<std::string> parts = split(text, ':');
    if (parts.size() < 3 || parts.size() > 4 || !kinds.contains(parts[0])) refuse("FAULTS", text);
    Fault fault{kinds.at(parts[0]), static_cast<int>(number("FAULTS", parts[1]))};
    if (parts[2] == "init") {
        fault.when = Fault::in_init;
    } else if (parts[2] == "abort") {
        fault.when = Fault::in_abort;
    } else if (parts[2] == "id") {
        fault.when = Fault::in_id;
    } else if (parts[2] == "window") {
        fault.when = Fault::in_window;
    } else if (parts[2] == "split") {
        fault.when = Fault::after_split;
    } else {
        fault.when = number("FAULTS", parts[2]);
    }
    if (parts.size() == 4) fault.result = static_cast<ncclResult_t>(number("FAULTS", parts[3]));
    return fault;
}

constexpr std::array names{"VERSION",         "LENIENT",      "OPERATION_DELAY_US",
                           "LAUNCH_DELAY_US", "LAUNCH_POLLS", "REMOTE_ERROR_MS",
                           "FAULTS",          "SYMMETRIC"};

// An empty value is as none.
void set(Knobs& knobs, std::string_view name, const std::string& value) {
    const bool given = !value.empty();
    const auto count = [&] { return given ? number(name, value) : 0; };
    if (name == "VERSION") {
        knobs.version = given ? static_cast<int>(count()) : library_version();
    } else if (name == "LENIENT") {
        knobs.lenient = count() != 0;
    } else if (name == "SYMMETRIC") {
        knobs.symmetric = !given || count() != 0;
    } else if (name == "OPERATION_DELAY_US") {
        knobs.operation_delay = std::chrono::microseconds{count()};
    } else if (name == "LAUNCH_DELAY_US") {
        knobs.launch_delay = std::chrono::microseconds{count()};
    } else if (name == "LAUNCH_POLLS") {
        knobs.launch_polls = static_cast<int>(count());
    } else if (name == "REMOTE_ERROR_MS") {
        knobs.remote_error.reset();
        if (given) knobs.remote_error = std::chrono::milliseconds{count()};
    } else if (name == "FAULTS") {
        knobs.faults.clear();
        for (const std::string& fault : split(value, ',')) {
            knobs.faults.push_back(parse_fault(fault));
        }
    } else {
        refuse(name, value);
    }
}

struct State {
    State() {
        for (const char* name : names) {
            const char* const value = std::getenv(("DDP_STAND_IN_" + std::string(name)).c_str());
            if (value != nullptr) set(knobs, name, value);
        }
    }
    std::mutex mutex;
    Knobs knobs;
    std::map<std::string, int> calls;
};

State& state() {
    static State* const only = new State;  // threads of ours may outlive static objects
    return *only;
}

thread_local std::string last;
}  // namespace

std::optional<Fault> Knobs::fault(int rank, std::int64_t when) const {
    for (const Fault& fault : faults) {
        if (fault.rank == rank && fault.when == when) return fault;
    }
    return std::nullopt;
}

Knobs knobs() {
    const std::lock_guard lock(state().mutex);
    return state().knobs;
}

void count_call(const char* function) {
    const std::lock_guard lock(state().mutex);
    ++state().calls[function];
}

ncclResult_t misuse(const std::string& what) {
    if (knobs().lenient) return failed(ncclInvalidUsage, what);
    std::fprintf(stderr, "stand-in NCCL: misuse: %s\n", what.c_str());
    ::_exit(misuse_code);
}

ncclResult_t failed(ncclResult_t result, const std::string& why) {
    last = why;
    return result;
}

const char* last_error() { return last.c_str(); }

}  // namespace stand_in

void ddp_stand_in_set(const char* name, const char* value) {
    const std::lock_guard lock(stand_in::state().mutex);
    stand_in::set(stand_in::state().knobs, name, value == nullptr ? "" : value);
}

int ddp_stand_in_calls(const char* function) {
    const std::lock_guard lock(stand_in::state().mutex);
    const auto found = stand_in::state().calls.find(function);
    return found == stand_in::state().calls.end() ? 0 : found->second;
}
