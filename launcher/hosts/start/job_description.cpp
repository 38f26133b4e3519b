#include "launcher/hosts/start/job_description.hpp"

#include "base/frame.hpp"

#include <ddp/error.hpp>

#include <string.h>

#include <algorithm>
#include <sstream>

namespace ddp::launcher {
namespace {

enum class FrameType : std::uint8_t { description = 1, signal = 2 };

constexpr std::int64_t last_signal = 64;
constexpr std::string_view status_mark = " status ";
constexpr std::string_view end_mark = " ended ";

[[noreturn]] void refuse_frame(const std::string& why) {
    throw UsageError("job description: " + why);
}

void put_texts(base::PayloadWriter& out, const std::vector<std::string>& texts) {
    out.u32(static_cast<std::uint32_t>(texts.size()));
    for (const std::string& text : texts) out.str(text);
}

std::string take_text(base::PayloadReader& in) {
    std::string text = in.str();
    if (text.find('\0') != text.npos) refuse_frame("a text has a zero byte");
    return text;
}

std::vector<std::string> take_texts(base::PayloadReader& in) {
    std::vector<std::string> texts;
    for (std::uint32_t left = in.u32(); left > 0; --left) texts.push_back(take_text(in));
    return texts;
}

// In the one form in which it is sent.
std::optional<JobToken> take_token(base::PayloadReader& in) {
    std::string text = take_text(in);
    auto token = JobToken::parse(text);
    std::string again = token ? token->text() : "";
    const bool is_right = again == text;
    ::explicit_bzero(again.data(), again.size());
    ::explicit_bzero(text.data(), text.size());
    if (!is_right) refuse_frame("the token is none");
    return token;
}

std::string bytes_of(const JobDescription& job) {
    base::PayloadWriter out;
    out.u8(static_cast<std::uint8_t>(FrameType::description)).u32(job_description_version);
    out.str(job.greeting).u8(job.shows_status ? 1 : 0);
    std::string token = job.token ? job.token->text() : "";
    out.str(token).str(job.folder);
    ::explicit_bzero(token.data(), token.size());
    for (const auto* texts : {&job.environment, &job.options, &job.command}) put_texts(out, *texts);
    return out.take();
}

JobDescription take_description(base::PayloadReader& in) {
    if (const std::uint32_t version = in.u32(); version != job_description_version) {
        refuse_frame("it has version " + std::to_string(version) +
                     ", and this ddp-launch knows version " +
                     std::to_string(job_description_version) +
                     "; all hosts of a job need the same ddp-launch");
    }
    JobDescription job;
    job.greeting = take_text(in);
    const std::uint8_t shows_status = in.u8();
    if (shows_status > 1) refuse_frame("a value is none");
    job.shows_status = shows_status == 1;
    job.token = take_token(in);
    job.folder = take_text(in);
    job.environment = take_texts(in);
    job.options = take_texts(in);
    job.command = take_texts(in);
    const bool all_named = std::ranges::all_of(job.environment, [](const std::string& entry) {
        return entry.find('=') != entry.npos && entry.front() != '=';
    });
    if (!all_named) refuse_frame("a variable has no name");
    return job;
}

std::string bytes_of(const PassedSignal& message) {
    base::PayloadWriter out;
    out.u8(static_cast<std::uint8_t>(FrameType::signal)).i64(message.signal);
    return out.take();
}

PassedSignal take_signal(base::PayloadReader& in) {
    const std::int64_t signal = in.i64();
    if (signal < 1 || signal > last_signal) refuse_frame("a signal is none");
    return {static_cast<int>(signal)};
}

// What follows the greeting and the mark.
std::optional<std::istringstream> numbers_after(std::string_view greeting, std::string_view mark,
                                                std::string_view line) {
    if (!line.starts_with(greeting)) return std::nullopt;
    line.remove_prefix(greeting.size());
    if (!line.starts_with(mark)) return std::nullopt;
    return std::istringstream(std::string(line.substr(mark.size())));
}

}  // namespace

std::string status_line_for_starter(const std::string& greeting, const StatusMessage& status) {
    std::ostringstream line;
    line << greeting << status_mark << status.hosts << ' ' << status.workers << ' '
         << status.running << ' ' << status.restarts << ' ' << status.step << ' '
         << status.steps_per_second << '\n';
    return line.str();
}

std::optional<StatusMessage> status_in_line(std::string_view greeting, std::string_view line) {
    auto found = numbers_after(greeting, status_mark, line);
    if (!found) return std::nullopt;
    std::istringstream& numbers = *found;
    StatusMessage status;
    numbers >> status.hosts >> status.workers >> status.running >> status.restarts >> status.step >>
        status.steps_per_second;
    if (!numbers) return std::nullopt;
    return status;
}

std::string end_line_for_starter(const std::string& greeting, int exit_code) {
    return greeting + std::string(end_mark) + std::to_string(exit_code) + "\n";
}

std::optional<int> end_in_line(std::string_view greeting, std::string_view line) {
    auto numbers = numbers_after(greeting, end_mark, line);
    int exit_code = 0;
    if (!numbers || !(*numbers >> exit_code)) return std::nullopt;
    return exit_code;
}

std::string encode(const FromStarter& message) {
    return std::visit([](const auto& one) { return bytes_of(one); }, message);
}

FromStarter decode_from_starter(std::string_view frame) {
    base::PayloadReader in(frame);
    const auto type = static_cast<FrameType>(in.u8());
    FromStarter message;
    switch (type) {
        case FrameType::description:
            message = take_description(in);
            break;
        case FrameType::signal:
            message = take_signal(in);
            break;
        default:
            refuse_frame("it is none");
    }
    if (!in.at_end()) refuse_frame("it is too long");
    return message;
}

}  // namespace ddp::launcher
