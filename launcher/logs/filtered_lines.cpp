#include "launcher/logs/filtered_lines.hpp"

#include "base/net/socket.hpp"
#include "launcher/console/line_prefix.hpp"
#include "launcher/console/output_rules.hpp"

#include <algorithm>

namespace ddp::launcher {

const std::vector<std::string>& FilteredLines::texts_of(Stream stream) const {
    return stream == Stream::out ? options_.logs.duplicate_stdout_filters
                                 : options_.logs.duplicate_stderr_filters;
}

bool FilteredLines::is_wanted(int local_rank, Stream stream) const {
    const auto bit = static_cast<unsigned>(stream == Stream::out ? Streams::out : Streams::err);
    const bool teed = (static_cast<unsigned>(options_.logs.tee.of(local_rank)) & bit) != 0;
    return teed && is_shown_of_host(options_, local_rank, stream);
}

void FilteredLines::open(const LogTree& tree, int workers, int attempt) {
    finish();
    const ConsoleSettings settings = console_settings(options_, workers);
    for (const Stream stream : {Stream::out, Stream::err}) {
        Sink& sink = sink_of(stream);
        sink = {};
        if (texts_of(stream).empty()) continue;
        sink.file = tree.open_filtered(attempt, stream);
        for (int rank = 0; rank < workers; ++rank) {
            const std::string_view chosen =
                prefix_template_for(settings, rank, stream, OutputTarget::elsewhere);
            sink.sources.push_back(
                {expand_prefix(chosen, {options_.role, rank, rank, base::host_name(), 0})});
        }
    }
}

void FilteredLines::append(int local_rank, Stream stream, std::string_view bytes) {
    Sink& sink = sink_of(stream);
    const auto index = static_cast<std::size_t>(local_rank);
    if (index >= sink.sources.size() || !is_wanted(local_rank, stream)) return;
    Source& source = sink.sources[index];
    write(stream, source, source.cutter.feed(bytes));
}

void FilteredLines::write(Stream stream, const Source& source, std::string_view lines) {
    const std::vector<std::string>& texts = texts_of(stream);
    std::string chosen;
    while (!lines.empty()) {
        const std::size_t newline = lines.find('\n');
        const std::size_t size = newline == lines.npos ? lines.size() : newline + 1;
        const std::string_view line = lines.substr(0, size);
        const bool matches = std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
            return line.find(text) != line.npos;
        });
        if (matches) chosen.append(source.prefix).append(line);
        lines.remove_prefix(size);
    }
    sink_of(stream).file.write(chosen);
}

void FilteredLines::finish() {
    for (const Stream stream : {Stream::out, Stream::err}) {
        for (Source& source : sink_of(stream).sources) {
            write(stream, source, source.cutter.finish());
        }
    }
}

std::string FilteredLines::take_problem() {
    std::string problem = sink_of(Stream::out).file.take_problem();
    return problem.empty() ? sink_of(Stream::err).file.take_problem() : problem;
}

}  // namespace ddp::launcher
