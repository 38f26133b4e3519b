// What stands before each line of a worker: a template with ${role_name}, ${rank}, ${local_rank}
// (torchrun's), ${hostname} and ${pid} (ours), each with or without braces. "$$" is a dollar sign,
// and what names none of them stays as it is.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace ddp::launcher {

// torchrun's, for what --tee shows.
inline constexpr std::string_view torchrun_prefix_template = "[${role_name}${local_rank}]:";
// On a terminal that shows several workers.
inline constexpr std::string_view terminal_prefix_template = "[${rank}] ";

struct PrefixValues {
    std::string role_name;
    int rank = 0;
    int local_rank = 0;
    std::string hostname;
    pid_t pid = 0;
};

std::string expand_prefix(std::string_view prefix_template, const PrefixValues& values);

// With the escape sequences for one of a few colours, the same for the same rank.
std::string coloured(std::string_view prefix, int rank);

// Whether escape sequences are wanted on a terminal: NO_COLOR empty or not set, TERM not "dumb".
bool colours_wanted();
// Whether the terminal can move its cursor: TERM is set and not "dumb".
bool terminal_can_redraw();

}  // namespace ddp::launcher
