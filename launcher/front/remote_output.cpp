#include "launcher/front/remote_output.hpp"

#include "launcher/console/console.hpp"
#include "launcher/console/status_line.hpp"
#include "launcher/hosts/start/job_description.hpp"

#include <algorithm>
#include <cstring>

namespace ddp::launcher {
namespace {

constexpr std::string_view own_name = "ddp-launch: ";
constexpr std::size_t most_different_words = 4096;
constexpr std::size_t longest_word = 4096;
// In an output's queue when more is asked for. A terminal's is empty then: what is put while it
// takes nothing would be lost after a while.
constexpr std::size_t most_queued = 256 * 1024;

}  // namespace

std::string RepeatedWords::without_repeated(int host, std::string_view lines) {
    if (lines.find(own_name) == lines.npos) return std::string(lines);  // nearly always
    std::string kept;
    while (!lines.empty()) {
        const std::string_view line = lines.substr(0, lines.find('\n') + 1);
        lines.remove_prefix(line.size());
        if (!is_repeated(host, line)) kept += line;
    }
    return kept;
}

// " on host h2" comes last where another host's report is told of in a line.
bool RepeatedWords::is_repeated(int host, std::string_view line) {
    if (!line.starts_with(own_name) || line.size() > longest_word) return false;
    const std::size_t where = line.rfind(" on host ");
    if (where != line.npos && said_.contains(std::string(line.substr(0, where)) + "\n"))
        return true;
    auto found = said_.find(line);
    if (found == said_.end()) {
        if (said_.size() >= most_different_words) return false;
        found = said_.emplace(line, Said{}).first;
    }
    Said& said = found->second;
    const int times = ++said.times[host];
    if (times <= said.shown) return true;
    said.shown = times;
    return false;
}

RemoteOutput::RemoteOutput(int out_fd, int err_fd, std::string greeting)
    : greeting_(std::move(greeting)) {
    writers_.push_back(std::make_unique<LineWriter>(out_fd));
    if (!are_one_file(out_fd, err_fd)) writers_.push_back(std::make_unique<LineWriter>(err_fd));
}

bool RemoteOutput::takes(Stream stream) const {
    const Output& output = writer_of(stream).output();
    return output.queued_bytes() <= (output.is_terminal() ? 0 : most_queued);
}

void RemoteOutput::put(int host, Stream stream, std::string_view bytes) {
    const StreamKey key{host, stream};
    LineCutter& cutter = cutters_[key];
    const LineStart start = cutter.in_line() ? LineStart::continued : LineStart::fresh;
    show(key, cutter.feed(bytes), start);
}

void RemoteOutput::end(int host, Stream stream) {
    const StreamKey key{host, stream};
    LineCutter& cutter = cutters_[key];
    const LineStart start = cutter.in_line() ? LineStart::continued : LineStart::fresh;
    show(key, cutter.finish(), start);
    cutters_.erase(key);
}

// The rest of a line that is out in part is nothing that a launcher says.
void RemoteOutput::show(StreamKey key, std::string_view lines, LineStart start) {
    if (key.stream == Stream::out || start == LineStart::continued) {
        return writer_of(key.stream).put(key, "", lines, start);
    }
    const bool is_whole = !lines.empty() && lines.back() == '\n';
    const std::string kept =
        is_whole ? repeated_.without_repeated(key.local_rank, without_words_for_starter(lines))
                 : std::string(lines);
    writer_of(key.stream).put(key, "", kept, start);
}

std::string RemoteOutput::without_words_for_starter(std::string_view lines) {
    if (greeting_.empty() || lines.find(greeting_) == lines.npos) return std::string(lines);
    std::string kept;
    while (!lines.empty()) {
        const std::string_view line = lines.substr(0, lines.find('\n') + 1);
        lines.remove_prefix(line.size());
        if (const auto status = status_in_line(greeting_, line)) {
            status_ = *status;
        } else if (const auto code = end_in_line(greeting_, line)) {
            job_code_ = *code;
        } else {
            kept += line;
        }
    }
    return kept;
}

// After a second, as that of a job on this host.
void RemoteOutput::show_status(Time now) {
    LineWriter& writer = writer_of(Stream::err);
    if (!status_ || !writer.live() || now < std::max(next_draw_, began_ + Console::quiet_time)) {
        return;
    }
    next_draw_ = now + Console::redraw_time;
    const auto elapsed = std::chrono::floor<std::chrono::seconds>(now - began_);
    writer.show_live({std::string(own_name) + status_text(job_status(*status_, elapsed))});
}

void RemoteOutput::end_status() {
    status_.reset();
    writer_of(Stream::err).show_live({});
}

void RemoteOutput::say(std::string_view text) {
    writer_of(Stream::err).say(std::string(own_name) + std::string(text) + "\n");
}

std::array<pollfd, 2> RemoteOutput::wanted() const {
    std::array<pollfd, 2> entries{{{-1, POLLOUT, 0}, {-1, POLLOUT, 0}}};
    for (std::size_t i = 0; i < writers_.size(); ++i) {
        const Output& output = writers_[i]->output();
        if (output.queued_bytes() > 0) entries[i].fd = output.fd();
    }
    return entries;
}

void RemoteOutput::run(Time now, std::optional<Time> stop_asked_at) {
    for (const auto& writer : writers_) {
        Output& output = writer->output();
        output.pump();
        if (const int problem = output.take_problem(); problem != 0) {
            say(std::string("cannot write the output of the hosts: ") + std::strerror(problem));
        }
        if (!stop_asked_at || output.queued_bytes() == 0) continue;
        if (now - std::max(output.stuck_since(), *stop_asked_at) >= LineWriter::stuck_time) {
            writer->give_up();
        }
    }
    show_status(now);
}

bool RemoteOutput::is_idle() const {
    return std::ranges::all_of(
        writers_, [](const auto& writer) { return writer->output().queued_bytes() == 0; });
}

bool RemoteOutput::lost_its_reader(Stream stream) const {
    return writer_of(stream).output().gone();
}

}  // namespace ddp::launcher
