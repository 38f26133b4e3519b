#include "contract/error_file.hpp"

#include "base/replace_file.hpp"
#include "base/unique_fd.hpp"
#include "contract/break_on_failure.hpp"
#include "contract/exit_code.hpp"

#include <ddp/error.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <typeinfo>
#include <utility>

#include <cxxabi.h>

namespace ddp::contract {
namespace {

using nlohmann::json;

constexpr off_t max_error_file_bytes = off_t{1} << 20;
// Of a file that we write, each: quoted they may grow, and the file is to be believed.
constexpr std::size_t max_text_bytes = std::size_t{64} << 10;
// Of a file that we read. What copies, writes or frees JSON goes down its depth with the stack.
constexpr int max_depth = 32;
constexpr int max_values = 20'000;

std::string type_name(const std::exception& error) {
    int status = 0;
    char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
    std::string result = status == 0 ? name : typeid(error).name();
    std::free(name);
    return result;
}

json to_json(const ErrorReport& report) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::int64_t time =
        report.timestamp.value_or(std::chrono::duration_cast<std::chrono::seconds>(now).count());
    json extra = {{"py_callstack", report.callstack.substr(0, max_text_bytes)},
                  {"timestamp", std::to_string(time)}};
    if (report.peer) extra["peer"] = *report.peer;
    return {
        {"message", {{"message", report.message.substr(0, max_text_bytes)}, {"extraInfo", extra}}}};
}

// Looks at a text and keeps nothing: false at what is too deep, too much, or no JSON.
class JsonLimits : public nlohmann::json_sax<json> {
public:
    bool null() override { return count(); }
    bool boolean(bool) override { return count(); }
    bool number_integer(number_integer_t) override { return count(); }
    bool number_unsigned(number_unsigned_t) override { return count(); }
    bool number_float(number_float_t, const string_t&) override { return count(); }
    bool string(string_t&) override { return count(); }
    bool binary(binary_t&) override { return count(); }
    bool key(string_t&) override { return true; }
    bool start_object(std::size_t) override { return count() && ++depth_ <= max_depth; }
    bool start_array(std::size_t) override { return count() && ++depth_ <= max_depth; }
    bool end_object() override { return --depth_, true; }
    bool end_array() override { return --depth_, true; }
    bool parse_error(std::size_t, const std::string&, const json::exception&) override {
        return false;
    }

private:
    bool count() { return ++values_ <= max_values; }

    int depth_ = 0;
    int values_ = 0;
};

// An exception's text may be any bytes; JSON is UTF-8.
std::string text_of(const json& file) {
    return file.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<json> read_json(const std::string& path) {
    const std::optional<std::string> text = read_error_file_text(path);
    JsonLimits limits;
    if (!text || !json::sax_parse(*text, &limits)) return std::nullopt;
    json parsed = json::parse(*text, nullptr, false);
    if (!parsed.is_object() || !parsed.contains("message")) return std::nullopt;
    return std::optional<json>(std::in_place, std::move(parsed));
}

std::optional<std::int64_t> as_number(const json& value) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
    if (value.is_number_integer()) return value.get<std::int64_t>();
    if (value.is_number_float() && std::abs(value.get<double>()) < 1e15) {
        return static_cast<std::int64_t>(value.get<double>());
    }
    if (!value.is_string()) return std::nullopt;
    const auto& text = value.get_ref<const std::string&>();
    std::int64_t number = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || result.ec != std::errc{}) return std::nullopt;
    return number;
}

std::optional<int> as_rank(const json& value) {
    constexpr std::int64_t last = std::numeric_limits<int>::max();
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= last;
    return fits ? std::optional(value.get<int>()) : std::nullopt;
}

void take_extra(const json& object, ErrorReport& report) {
    static const json nothing;
    const auto find = [&](const char* name) -> const json& {
        const auto found = object.find(name);
        return found != object.end() ? *found : nothing;
    };
    if (const json& stack = find("py_callstack"); stack.is_string() && report.callstack.empty()) {
        report.callstack = stack.get<std::string>();
    }
    if (const auto time = as_number(find("timestamp"))) report.timestamp = time;
    if (const auto peer = as_rank(find("peer"))) report.peer = peer;
}

// {"message": "text"}, {"message": {"message": "text", "extraInfo": {...}}}, and so on inwards.
std::optional<ErrorReport> report_of(const json& file) {
    constexpr int max_messages = 8;
    ErrorReport report;
    const json* object = &file;
    for (int inwards = 0; inwards < max_messages; ++inwards) {
        take_extra(*object, report);
        if (const auto extra = object->find("extraInfo");
            extra != object->end() && extra->is_object()) {
            take_extra(*extra, report);
        }
        const auto message = object->find("message");
        if (message == object->end()) return std::nullopt;
        if (message->is_string()) {
            report.message = message->get<std::string>();
            if (report.message.empty()) return std::nullopt;
            return report;
        }
        if (!message->is_object()) return std::nullopt;
        object = &*message;
    }
    return std::nullopt;
}

std::terminate_handler previous_handler = nullptr;
thread_local bool leaves_because_of_peer = false;

// Nobody is to blame for what a rank did to itself but that rank.
std::optional<int> other_rank(std::optional<int> culprit) {
    const char* const mine = std::getenv("RANK");
    if (culprit && mine != nullptr && std::to_string(*culprit) == mine) return std::nullopt;
    return culprit;
}

// A rank that leaves because of another is not the one to look into.
[[noreturn]] void on_terminate() {
    const std::exception_ptr pending = std::current_exception();
    std::optional<ErrorReport> report;
    if (pending) report = describe(pending);
    if (report) write_error_file(*report);
    if (report && report->peer) {
        do_not_stop_for_debugger();
        if (leaves_because_of_peer) std::_Exit(report_and_choose_exit_code(*report));
    } else {
        stop_for_debugger();
    }
    if (previous_handler != nullptr) previous_handler();
    std::abort();
}

}  // namespace

ErrorReport describe(std::exception_ptr error) {
    try {
        std::rethrow_exception(std::move(error));
    } catch (const Error& known) {
        return {type_name(known) + ": " + known.what(), other_rank(known.culprit())};
    } catch (const std::exception& other) {
        return {type_name(other) + ": " + other.what(), std::nullopt};
    } catch (...) {
        return {"an exception that is no std::exception", std::nullopt};
    }
}

int report_and_choose_exit_code(const ErrorReport& report) noexcept {
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", report.message.c_str());
    return report.peer ? exit_because_of_peer : exit_error;
}

void write_error_file(const ErrorReport& report) noexcept {
    const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
    if (path == nullptr || *path == '\0') return;
    try {
        base::replace_file(path, text_of(to_json(report)));
    } catch (...) {  // NOLINT(bugprone-empty-catch): promised: the first error is what matters
    }
}

// The worker chose what lies there: a pipe must not hold us up, a link must not lead us elsewhere.
std::optional<std::string> read_error_file_text(const std::string& path) {
    const base::UniqueFd fd(
        ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    if (status.st_size > max_error_file_bytes) return std::nullopt;
    std::string text(static_cast<std::size_t>(status.st_size), 0);
    std::size_t filled = 0;
    while (filled < text.size()) {
        const ssize_t got = ::read(fd.get(), text.data() + filled, text.size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        filled += static_cast<std::size_t>(got);
    }
    text.resize(filled);
    return text;
}

std::optional<ErrorReport> read_error_file(const std::string& path) {
    const std::optional<json> file = read_json(path);
    return file ? report_of(*file) : std::nullopt;
}

int copy_error_file(const std::string& from, const std::string& to, int error_code,
                    const ErrorReport& otherwise) {
    std::optional<json> file = read_json(from);
    if (!file || !report_of(*file)) file.emplace(to_json(otherwise));
    // The short form has no place for a code beside its text.
    if ((*file)["message"].is_string()) file.emplace(to_json(*report_of(*file)));
    (*file)["message"]["errorCode"] = error_code;
    return base::replace_file(to, text_of(*file));
}

void leave_because_of_peer() noexcept { leaves_because_of_peer = true; }

void install_terminate_handler() {
    static std::once_flag once;
    std::call_once(once, [] {
        previous_handler = std::set_terminate(&on_terminate);
        stop_on_fatal_signals();
    });
}

}  // namespace ddp::contract
