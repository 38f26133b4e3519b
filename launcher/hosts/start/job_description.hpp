// What the ddp-launch that starts a job on several hosts sends to the one that it has started on
// each of them, over the standard input of that: the description of its part, then signals. Pure:
// values to bytes and back.
// Invariant: decode_from_starter() takes what encode() makes and nothing else, whatever bytes it is
// given.
//
//   frames       u32 length (little-endian, of what follows, at most 4 MiB)   u8 type   payload
//   description  1   u32 version, str greeting, u8 1: it shows a status line, str token (64 hex
//                    digits, or none), str folder, list environment, list options, list command; a
//                    list is a u32 count and so many str
//   signal       2   i64 number
#pragma once

#include "launcher/channel/channel.hpp"
#include "launcher/hosts/job_token.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddp::launcher {

inline constexpr std::size_t max_starter_frame_bytes = std::size_t{4} << 20;
inline constexpr std::uint32_t job_description_version = 2;

struct JobDescription {
    // The remote launcher writes it as a line of its stdout and of its stderr before anything else
    // of the job. The starter draws it, so that no banner of a remote shell is taken for it.
    std::string greeting;
    bool shows_status = false;           // the starter: it wants status lines
    std::optional<JobToken> token = {};  // by which the job's hosts know each other
    std::string folder;
    std::vector<std::string> environment;  // "NAME=value"
    std::vector<std::string> options;      // of ddp-launch: "--name=value", "--flag"
    std::vector<std::string> command;      // the program and its arguments
    friend bool operator==(const JobDescription&, const JobDescription&) = default;
};

// As if the remote launcher had got it.
struct PassedSignal {
    int signal = 0;
    friend bool operator==(const PassedSignal&, const PassedSignal&) = default;
};

using FromStarter = std::variant<JobDescription, PassedSignal>;

// A line that the part which coordinates writes to its stderr for the starter's status line, with
// its newline: the greeting, " status", and the numbers. And back: nothing for any other line.
std::string status_line_for_starter(const std::string& greeting, const StatusMessage& status);
std::optional<StatusMessage> status_in_line(std::string_view greeting, std::string_view line);
// The same for the exit code of the job, which each part that hears of its end writes: a part that
// the job has lost ends with another one.
std::string end_line_for_starter(const std::string& greeting, int exit_code);
std::optional<int> end_in_line(std::string_view greeting, std::string_view line);

// The bytes of a frame, without its length.
std::string encode(const FromStarter& message);
// Throws UsageError on anything that encode() does not make of texts that a program can be given: a
// zero byte is in none, and a variable has a name.
FromStarter decode_from_starter(std::string_view frame);

}  // namespace ddp::launcher
