// Plain blocking calls throughout: whoever waits here waits alone.
#include "launcher/logs/log_writer_process.hpp"

#include "base/frame.hpp"
#include "contract/error_file.hpp"
#include "launcher/logs/filtered_lines.hpp"
#include "launcher/plan/error_folder.hpp"
#include "launcher/report/report_file.hpp"

#include <ddp/error.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <vector>

namespace ddp::launcher {
namespace {

std::uint32_t u32(int number) { return static_cast<std::uint32_t>(number); }

struct RequestEncoder {
    base::PayloadWriter out;

    void operator()(const OpenRequest& r) { out.u32(u32(r.workers)).u32(u32(r.attempt)); }
    void operator()(const AppendRequest& r) {
        out.u32(u32(r.local_rank)).u8(static_cast<std::uint8_t>(r.stream)).str(r.bytes);
    }
    void operator()(const ReportRequest& r) { out.str(r.json); }
    void operator()(const CopyErrorsRequest& r) {
        out.u32(u32(r.workers)).u32(u32(r.attempt)).str(r.folder);
    }
};

struct AnswerEncoder {
    base::PayloadWriter out;

    void operator()(const CompletedAnswer& a) { out.u32(a.requests); }
    void operator()(const ProblemAnswer& a) { out.str(a.text); }
    void operator()(const NotOpenedAnswer& a) { out.str(a.text); }
};

template <class Encoder, class Variant>
std::string encode_with(const Variant& message) {
    Encoder encoder;
    encoder.out.u8(static_cast<std::uint8_t>(message.index()));
    std::visit(encoder, message);
    return encoder.out.take();
}

int take_int(base::PayloadReader& in) { return static_cast<int>(in.u32()); }

class LogServer {
public:
    LogServer(int socket, const LogTree& tree, const Options& options)
        : socket_(socket), tree_(tree), filtered_(options) {}
    void run();

    void operator()(const OpenRequest& request);
    void operator()(const AppendRequest& request);
    void operator()(const ReportRequest& request);
    void operator()(const CopyErrorsRequest& request);

private:
    void answer(const LogAnswer& answer) const;

    int socket_;
    const LogTree& tree_;
    base::FrameReader requests_{max_log_request_bytes};
    std::vector<std::array<LogFile, 2>> files_;  // by local rank
    FilteredLines filtered_;
};

void LogServer::run() {
    std::array<char, 64 * 1024> bytes;
    for (;;) {
        const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return filtered_.finish();
        requests_.feed({bytes.data(), static_cast<std::size_t>(got)});
        std::uint32_t settled = 0;
        for (; const auto payload = requests_.next(); ++settled) {
            std::visit(*this, decode_log_request(*payload));
        }
        if (settled > 0) answer(CompletedAnswer{settled});
    }
}

// An agent that is gone hears nothing.
void LogServer::answer(const LogAnswer& answer) const {
    std::string frame;
    base::append_frame(frame, encode(answer));
    std::string_view left = frame;
    while (!left.empty()) {
        const ssize_t sent = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return;
        left.remove_prefix(static_cast<std::size_t>(sent));
    }
}

void LogServer::operator()(const OpenRequest& request) {
    files_.clear();
    try {
        for (int rank = 0; rank < request.workers; ++rank) {
            tree_.make_folder(request.attempt, rank);
            files_.push_back({tree_.open(request.attempt, rank, Stream::out),
                              tree_.open(request.attempt, rank, Stream::err)});
            answer(CompletedAnswer{0});  // slow is not stuck
        }
        filtered_.open(tree_, request.workers, request.attempt);
    } catch (const std::exception& error) {
        answer(NotOpenedAnswer{error.what()});
    }
}

void LogServer::operator()(const AppendRequest& request) {
    const auto rank = static_cast<std::size_t>(request.local_rank);
    if (rank >= files_.size()) return;
    LogFile& file = files_[rank][request.stream == Stream::out ? 0 : 1];
    file.write(request.bytes);
    if (std::string problem = file.take_problem(); !problem.empty()) {
        answer(ProblemAnswer{std::move(problem)});
    }
    filtered_.append(request.local_rank, request.stream, request.bytes);
    if (std::string problem = filtered_.take_problem(); !problem.empty()) {
        answer(ProblemAnswer{std::move(problem)});
    }
}

void LogServer::operator()(const ReportRequest& request) {
    std::string problem = write_report_file(tree_.report_file(), request.json);
    if (!problem.empty()) answer(ProblemAnswer{std::move(problem)});
}

void LogServer::operator()(const CopyErrorsRequest& request) {
    const ErrorFiles from = tree_.error_files(request.attempt);
    const ErrorFiles to = error_files_in(request.folder);
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    for (int rank = 0; rank < request.workers; ++rank) {
        const auto text = contract::read_error_file_text(from.of(rank));
        answer(CompletedAnswer{0});
        if (!text) continue;
        const base::UniqueFd file(::open(to.of(rank).c_str(), flags, 0600));
        std::string_view left = *text;
        while (file && !left.empty()) {
            const ssize_t written = ::write(file.get(), left.data(), left.size());
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) break;
            left.remove_prefix(static_cast<std::size_t>(written));
        }
    }
}

}  // namespace

std::string encode(const LogRequest& request) { return encode_with<RequestEncoder>(request); }

std::string encode(const LogAnswer& answer) { return encode_with<AnswerEncoder>(answer); }

LogRequest decode_log_request(std::string_view payload) {
    base::PayloadReader in(payload);
    const std::uint8_t kind = in.u8();
    if (kind == 2) return ReportRequest{in.str()};
    const int first = take_int(in);
    if (kind == 0) return OpenRequest{first, take_int(in)};
    if (kind == 1) {
        const Stream stream = in.u8() == 0 ? Stream::out : Stream::err;
        return AppendRequest{first, stream, in.str()};
    }
    if (kind != 3) throw UsageError("log writer: unknown request");
    const int attempt = take_int(in);
    return CopyErrorsRequest{first, attempt, in.str()};
}

LogAnswer decode_log_answer(std::string_view payload) {
    base::PayloadReader in(payload);
    switch (in.u8()) {
        case 0:
            return CompletedAnswer{in.u32()};
        case 1:
            return ProblemAnswer{in.str()};
        case 2:
            return NotOpenedAnswer{in.str()};
    }
    throw UsageError("log writer: unknown answer");
}

void run_log_writer(int socket, const LogTree& tree, const Options& options) {
    LogServer(socket, tree, options).run();
}

}  // namespace ddp::launcher
