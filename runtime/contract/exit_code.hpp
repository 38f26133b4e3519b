// Exit codes with a meaning between worker and launcher; launcher/report/failure.hpp says how the
// launcher finds the root cause from them.
#pragma once

namespace ddp::contract {

inline constexpr int exit_ok = 0;
inline constexpr int exit_error = 1;
inline constexpr int exit_usage = 2;  // the launcher's own command line
inline constexpr int exit_because_of_peer =
    82;  // left because of another rank; only with an error file that names it
inline constexpr int exit_could_not_abort = 83;  // ended by its own watchdog
// This host was cut off from its job, or a host was lost and no rank is to blame.
inline constexpr int exit_host_lost = 84;
inline constexpr int exit_not_executable = 126;
inline constexpr int exit_not_found = 127;
inline constexpr int exit_signal_base = 128;  // 128 + signal, as shells

}  // namespace ddp::contract
