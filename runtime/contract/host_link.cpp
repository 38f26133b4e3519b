#include "contract/host_link.hpp"

#include "base/frame.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <span>
#include <utility>

namespace ddp::contract {
namespace {

bool keep_from_children(int fd) { return fd > 2 && ::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0; }

// "liveness fd:results:failure policy"; the last may be missing.
struct LinkHandover {
    int liveness_fd = -1;
    int results = -1;
    unsigned failure_policy = 0;
};

std::optional<LinkHandover> parse_link_handover(std::string_view text) {
    LinkHandover given;
    const char* const end = text.data() + text.size();
    const auto liveness = std::from_chars(text.data(), end, given.liveness_fd);
    if (liveness.ec != std::errc{} || liveness.ptr == end || *liveness.ptr != ':')
        return std::nullopt;
    auto rest = std::from_chars(liveness.ptr + 1, end, given.results);
    if (rest.ec != std::errc{}) return std::nullopt;
    if (rest.ptr != end && *rest.ptr == ':')
        rest = std::from_chars(rest.ptr + 1, end, given.failure_policy);
    const bool read =
        rest.ec == std::errc{} && rest.ptr == end && given.liveness_fd != given.results;
    return read ? std::optional(given) : std::nullopt;
}

std::size_t hosts_that_fit(const LaunchEnd& end) {
    std::size_t told = 0;
    std::size_t bytes = 0;
    for (const HostEnd& host : end.hosts) {
        bytes += host.host.size() + 2 * sizeof(std::uint32_t);
        if (bytes > max_hosts_bytes) break;
        ++told;
    }
    return told;
}

bool is_socket(int fd) {
    int type = 0;
    socklen_t length = sizeof type;
    return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0;
}

}  // namespace

std::string to_payload(const LaunchEnd& end) {
    base::PayloadWriter writer;
    writer.u8(static_cast<std::uint8_t>(end.kind));
    writer.i64(end.exit_code);
    writer.str(std::string_view(end.report).substr(0, max_report_bytes));
    writer.u32(static_cast<std::uint32_t>(end.ends.size()));
    for (const RankEnd& one : end.ends) {
        for (const int number : {one.rank, one.status.code, one.status.signal, one.stopped_with}) {
            writer.u32(static_cast<std::uint32_t>(number));
        }
        writer.u8(one.status.core_dumped ? 1 : 0);
    }
    const std::size_t told = hosts_that_fit(end);
    writer.u32(static_cast<std::uint32_t>(told));
    for (const HostEnd& host : std::span(end.hosts).first(told)) {
        writer.str(host.host);
        writer.u32(static_cast<std::uint32_t>(host.exit_code));
    }
    return writer.take();
}

LaunchEnd parse_launch_end(std::string_view payload) {
    base::PayloadReader reader(payload);
    const std::uint8_t kind = reader.u8();
    if (kind > static_cast<std::uint8_t>(LaunchEnd::Kind::wrong_command_line)) {
        throw UsageError("launch: ddp-launch sent a result of an unknown kind; is it of this ddp?");
    }
    LaunchEnd end;
    end.kind = static_cast<LaunchEnd::Kind>(kind);
    end.exit_code = static_cast<int>(reader.i64());
    end.report = reader.str();
    const auto take_int = [&] { return static_cast<int>(reader.u32()); };
    for (std::uint32_t left = reader.u32(); left > 0; --left) {
        RankEnd& one = end.ends.emplace_back();
        one.rank = take_int();
        one.status.code = take_int();
        one.status.signal = take_int();
        one.stopped_with = take_int();
        one.status.core_dumped = reader.u8() != 0;
    }
    for (std::uint32_t left = reader.u32(); left > 0; --left) {
        HostEnd& host = end.hosts.emplace_back();
        host.host = reader.str();
        host.exit_code = take_int();
    }
    if (!reader.at_end()) throw UsageError("launch: ddp-launch sent a result that is too long");
    return end;
}

HostLink HostLink::take() {
    HostLink link;
    const char* value = std::getenv(host_link_variable);
    const auto given = value != nullptr ? parse_link_handover(value) : std::nullopt;
    if (given && is_socket(given->results) && keep_from_children(given->liveness_fd) &&
        keep_from_children(given->results)) {
        link.parent_liveness_.reset(given->liveness_fd);
        link.results_.reset(given->results);
        link.failure_policy_ =
            given->failure_policy == 0 ? FailurePolicy::stop_job : FailurePolicy::tell_host;
    }
    ::unsetenv(host_link_variable);
    return link;
}

HostLink HostLink::of_starter(base::UniqueFd liveness, std::string greeting, bool shows_status) {
    HostLink link;
    link.parent_liveness_ = std::move(liveness);
    link.greeting_ = std::move(greeting);
    link.shows_status_ = shows_status;
    return link;
}

void HostLink::greet() const {
    if (greeting_.empty()) return;
    const std::string line = greeting_ + "\n";
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
        // A new pipe has room for it, and one without a reader is seen at the next write.
        if (::write(fd, line.data(), line.size()) < 0) continue;
    }
}

void HostLink::send(const LaunchEnd& end) const {
    if (!results_) return;
    std::string frame;
    base::append_frame(frame, to_payload(end));
    // A socket's buffer has room for this one frame.
    static_cast<void>(
        ::send(results_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

void HostLink::close() {
    parent_liveness_.reset();
    results_.reset();
}

}  // namespace ddp::contract
