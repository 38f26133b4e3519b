#include "contract/error_file.hpp"

#include <ddp/error.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <typeinfo>

#include <cxxabi.h>

namespace ddp::contract {
namespace {

using nlohmann::json;

constexpr std::streamsize max_error_file_bytes = 1 << 20;

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
    std::ifstream file(path, std::ios::binary);
    std::string text(static_cast<std::size_t>(max_error_file_bytes), '\0');
    if (!file.read(text.data(), max_error_file_bytes) && file.gcount() == 0) return std::nullopt;
    text.resize(static_cast<std::size_t>(file.gcount()));
    const json parsed = json::parse(text, nullptr, false);
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
