// spdlog, header-only, in this file alone. Its namespace is renamed here: the library is linked
// into programs that may use another spdlog, and two versions of one inline function in one program
// would be merged into whichever came first.
#define spdlog ddp_spdlog
#define SPDLOG_HEADER_ONLY
#define FMT_HEADER_ONLY
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#undef spdlog

#include "base/log.hpp"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

namespace ddp::base {
namespace {

namespace backend = ::ddp_spdlog;

backend::level::level_enum level_of(LogLevel level) {
    switch (level) {
        case LogLevel::debug:
            return backend::level::debug;
        case LogLevel::info:
            return backend::level::info;
        case LogLevel::warn:
            return backend::level::warn;
        case LogLevel::error:
            return backend::level::err;
        case LogLevel::off:
            return backend::level::off;
    }
    return backend::level::off;
}

LogLevel level_from_environment() {
    const char* value = std::getenv("DDP_LOG_LEVEL");
    const std::string_view name = value != nullptr ? value : "info";
    if (name == "debug") return LogLevel::debug;
    if (name == "warn") return LogLevel::warn;
    if (name == "error") return LogLevel::error;
    if (name == "off") return LogLevel::off;
    return LogLevel::info;
}

// The sink is shared by all rooms; a line is written whole, by one write.
struct Output {
    LogLevel level = level_from_environment();
    std::shared_ptr<backend::sinks::ansicolor_stderr_sink_mt> sink =
        std::make_shared<backend::sinks::ansicolor_stderr_sink_mt>();
    std::mutex mutex;
    std::string name = "-";

    Output() { set_pattern(); }
    void set_pattern() { sink->set_pattern("%L %H:%M:%S.%e " + name + " %n] %v"); }
};

Output& output() {
    // Never destroyed: threads and other static destructors may still log at exit.
    static auto* const instance = new Output;
    return *instance;
}

}  // namespace

bool log_enabled(LogLevel level) { return level >= output().level && level != LogLevel::off; }

void log(LogLevel level, std::string_view room, std::string_view message) {
    if (!log_enabled(level)) return;
    backend::logger logger(std::string(room), output().sink);
    logger.set_level(backend::level::trace);
    logger.log(level_of(level), backend::string_view_t(message.data(), message.size()));
    logger.flush();
}

void set_log_name(std::string_view name) {
    const std::lock_guard lock(output().mutex);
    output().name = name;
    output().set_pattern();
}

}  // namespace ddp::base
