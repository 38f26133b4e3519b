#include "launcher/console/output_rules.hpp"

#include "launcher/console/line_prefix.hpp"

#include <unistd.h>

#include <algorithm>

namespace ddp::launcher {
namespace {

bool has(Streams set, Stream stream) {
    const auto bit = static_cast<unsigned>(stream == Stream::out ? Streams::out : Streams::err);
    return (static_cast<unsigned>(set) & bit) != 0;
}

bool passes(const std::optional<std::vector<int>>& filter, int rank) {
    return !filter || std::ranges::find(*filter, rank) != filter->end();
}

}  // namespace

bool is_shown_of_host(const Options& options, int local_rank, Stream stream) {
    return passes(options.display.local_ranks_filter, local_rank) &&
           (!has(options.logs.redirects.of(local_rank), stream) ||
            has(options.logs.tee.of(local_rank), stream));
}

bool is_shown(const Options& options, RankOfWorker rank, Stream stream) {
    return passes(options.display.ranks_filter, rank.global) &&
           is_shown_of_host(options, rank.local, stream);
}

bool is_only_shown(const Options& options, RankOfWorker rank, Stream stream) {
    const bool to_file = !options.logs.dir.empty() ||
                         has(options.logs.redirects.of(rank.local), stream) ||
                         has(options.logs.tee.of(rank.local), stream);
    return !to_file && is_shown(options, rank, stream);
}

std::vector<NamedRank> named_ranks(const Options& options) {
    std::vector<NamedRank> named;
    for (const int rank : options.display.ranks_filter.value_or(std::vector<int>{})) {
        named.push_back({"--ranks-filter", rank});
    }
    if (const auto rank = options.input.stdin_rank) named.push_back({"--stdin", *rank});
    return named;
}

ConsoleSettings console_settings(const Options& options, int workers) {
    return {workers,          options.role,           options.display.line_prefix_template,
            options.logs.tee, options.display.status, named_ranks(options)};
}

std::string_view prefix_template_for(const ConsoleSettings& settings, int local_rank, Stream stream,
                                     OutputTarget target) {
    if (!settings.prefix_template.empty()) return settings.prefix_template;
    if (target == OutputTarget::terminal)
        return settings.workers > 1 ? terminal_prefix_template : "";
    return has(settings.tee.of(local_rank), stream) ? torchrun_prefix_template : "";
}

bool wants_status_line(const ConsoleSettings& settings) {
    return settings.status == StatusLine::automatic && settings.workers != 1 &&
           ::isatty(STDERR_FILENO) != 0 && terminal_can_redraw();
}

}  // namespace ddp::launcher
