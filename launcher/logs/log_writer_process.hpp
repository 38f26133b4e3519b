// The log writer's own side: a process of the agent's that alone touches the files of --log-dir, so
// that a file system that hangs holds up nobody else. It reads requests from a socket, one after
// the other, and ends when that ends: what is in the socket is written first. No signal but SIGKILL
// ends it before, as that of the front, which leaves nothing behind of an agent that was killed.
//
// A request is a frame: u8 kind and its fields. An answer likewise.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/logs/log_files.hpp"
#include "launcher/options/options.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

namespace ddp::launcher {

// Makes the folders and opens the files of an attempt.
struct OpenRequest {
    int workers;
    int attempt;
};
struct AppendRequest {
    int local_rank;
    Stream stream;
    std::string bytes;
};
struct ReportRequest {
    std::string json;
};
// Copies the error files of an attempt out of the tree, to the places that error_files_in(folder)
// names.
struct CopyErrorsRequest {
    int workers;
    int attempt;
    std::string folder;
};
using LogRequest = std::variant<OpenRequest, AppendRequest, ReportRequest, CopyErrorsRequest>;

// So many more requests are done, well or not.
struct CompletedAnswer {
    std::uint32_t requests;
};
// A line for the user.
struct ProblemAnswer {
    std::string text;
};
// The folders and files of an attempt are not to be had.
struct NotOpenedAnswer {
    std::string text;
};
using LogAnswer = std::variant<CompletedAnswer, ProblemAnswer, NotOpenedAnswer>;

inline constexpr std::size_t max_log_request_bytes = std::size_t{1} << 30;

// Payloads of frames. The takers throw UsageError for one that is none.
std::string encode(const LogRequest& request);
std::string encode(const LogAnswer& answer);
LogRequest decode_log_request(std::string_view payload);
LogAnswer decode_log_answer(std::string_view payload);

// Serves until the socket ends: in a process of its own (forked_helper.hpp).
void run_log_writer(int socket, const LogTree& tree, const Options& options);

}  // namespace ddp::launcher
