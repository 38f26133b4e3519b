// Which of the workers' output is shown, and with what before each line: the rules of --redirects,
// --tee, --local-ranks-filter, --ranks-filter, --log-line-prefix-template and --status.
#pragma once

#include "launcher/channel/channel.hpp"
#include "launcher/options/options.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

struct RankOfWorker {
    int local = 0;
    int global = 0;
};

// Whether a stream is shown on the console. Log files get it in any case.
bool is_shown(const Options& options, RankOfWorker rank, Stream stream);
// By all rules but --ranks-filter.
bool is_shown_of_host(const Options& options, int local_rank, Stream stream);

// Whether a stream goes to the console and nowhere else.
bool is_only_shown(const Options& options, RankOfWorker rank, Stream stream);

// A rank that an option names: of a job of several hosts it is known later whether there is one.
struct NamedRank {
    const char* option;
    int rank;
};
std::vector<NamedRank> named_ranks(const Options& options);

struct ConsoleSettings {
    int workers = 1;
    std::string role = {};
    std::string prefix_template = {};  // empty: the default of the target
    StreamsOfRanks tee = {};
    StatusLine status = StatusLine::automatic;
    std::vector<NamedRank> named_ranks = {};
};

ConsoleSettings console_settings(const Options& options, int workers);

enum class OutputTarget { terminal, elsewhere };

// Empty: no prefix.
std::string_view prefix_template_for(const ConsoleSettings& settings, int local_rank, Stream stream,
                                     OutputTarget target);

// Whether there will be a status line: several workers, or none of this host's, and stderr is a
// terminal that can redraw.
bool wants_status_line(const ConsoleSettings& settings);

}  // namespace ddp::launcher
