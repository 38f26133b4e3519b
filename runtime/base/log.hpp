// Log lines on stderr, one logger a room: `I 12:03:04.123 r3 store] connected`. The only user of
// spdlog in the library; spdlog's types stay in log.cpp. The level comes from DDP_LOG_LEVEL (debug,
// info, warn, error, off; default info). A healthy step logs nothing at info.
#pragma once

#include <string_view>

namespace ddp::base {

enum class LogLevel { debug, info, warn, error, off };

// Thread-safe. `room` is the folder's name.
void log(LogLevel level, std::string_view room, std::string_view message);
inline void log_debug(std::string_view room, std::string_view m) { log(LogLevel::debug, room, m); }
inline void log_info(std::string_view room, std::string_view m) { log(LogLevel::info, room, m); }
inline void log_warn(std::string_view room, std::string_view m) { log(LogLevel::warn, room, m); }
inline void log_error(std::string_view room, std::string_view m) { log(LogLevel::error, room, m); }

// Whether a message of this level is written: ask before building a costly one.
bool log_enabled(LogLevel level);

// What stands for the process in each line: "r3" once the rank is known, "agent", "front". Default
// "-".
void set_log_name(std::string_view name);

}  // namespace ddp::base
