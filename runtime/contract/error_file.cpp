#include "contract/error_file.hpp"

#include "base/unique_fd.hpp"

#include <ddp/error.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <typeinfo>

#include <cxxabi.h>

namespace ddp::contract {
namespace {

using nlohmann::json;

constexpr std::size_t max_error_file_bytes = std::size_t{1} << 20;

std::string type_name(const std::exception& error) {
    int status = 0;
    char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
    std::string result = status == 0 ? name : typeid(error).name();
    std::free(name);
    return result;
}

std::string to_json(const ErrorReport& report) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    json extra = {{"py_callstack", ""},
                  {"timestamp",
                   std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count())}};
    if (report.peer) extra["peer"] = *report.peer;
    const json file = {{"message", {{"message", report.message}, {"extraInfo", extra}}}};
    // An exception's text may be any bytes; JSON is UTF-8.
    return file.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool write_whole(const std::string& path, std::string_view text) {
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return false;
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return ::close(fd) == 0 && text.empty();
}

// The first max_error_file_bytes. The worker chose what lies there: a pipe must not hold us up, a
// link must not lead us elsewhere.
std::optional<std::string> read_regular_file(const std::string& path) {
    const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    std::string text(std::min(static_cast<std::size_t>(status.st_size), max_error_file_bytes), 0);
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

std::terminate_handler previous_handler = nullptr;

[[noreturn]] void on_terminate() {
    if (const std::exception_ptr pending = std::current_exception()) {
        write_error_file(describe(pending));
    }
    if (previous_handler != nullptr) previous_handler();
    std::abort();
}

}  // namespace

ErrorReport describe(std::exception_ptr error) {
    try {
        std::rethrow_exception(std::move(error));
    } catch (const PeerError& peer) {
        return {type_name(peer) + ": " + peer.what(), peer.rank()};
    } catch (const std::exception& other) {
        return {type_name(other) + ": " + other.what(), std::nullopt};
    } catch (...) {
        return {"an exception that is no std::exception", std::nullopt};
    }
}

void write_error_file(const ErrorReport& report) noexcept {
    const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
    if (path == nullptr || *path == '\0') return;
    try {
        const std::string temporary = std::string(path) + ".tmp" + std::to_string(::getpid());
        if (!write_whole(temporary, to_json(report)) || ::rename(temporary.c_str(), path) != 0) {
            ::unlink(temporary.c_str());
        }
    } catch (...) {  // NOLINT(bugprone-empty-catch): promised: the first error is what matters
    }
}

std::optional<ErrorReport> read_error_file(const std::string& path) {
    const std::optional<std::string> text = read_regular_file(path);
    if (!text) return std::nullopt;
    const json parsed = json::parse(*text, nullptr, false);
    if (!parsed.is_object() || !parsed.contains("message")) return std::nullopt;
    const json& message = parsed["message"];
    if (message.is_string()) return ErrorReport{message.get<std::string>(), std::nullopt};
    if (!message.is_object() || !message.value("message", json{}).is_string()) return std::nullopt;
    ErrorReport report{message["message"].get<std::string>(), std::nullopt};
    const json extra = message.value("extraInfo", json{});
    if (extra.is_object() && extra.value("peer", json{}).is_number_integer()) {
        report.peer = extra["peer"].get<int>();
    }
    return report;
}

void install_terminate_handler() {
    static std::once_flag once;
    std::call_once(once, [] { previous_handler = std::set_terminate(&on_terminate); });
}

}  // namespace ddp::contract
