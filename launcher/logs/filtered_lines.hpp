// --duplicate-stdout-filters and --duplicate-stderr-filters: lines of the streams that --tee shows
// and that hold one of some texts, of all ranks together, in one file an attempt:
//
//   <log_dir>/<run_id>_<random>/attempt_<restart>/{filtered_stdout.log, filtered_stderr.log}
//
// torchrun's files (2.9 and newer) and its prefixes. Lives in the log writer (log_writer.hpp).
#pragma once

#include "launcher/channel/line_cutter.hpp"
#include "launcher/logs/log_files.hpp"
#include "launcher/options/options.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

class FilteredLines {
public:
    explicit FilteredLines(Options options) : options_(std::move(options)) {}

    // The files of an attempt, where they are wanted; ends the lines of the one before. Throws as
    // LogFile.
    void open(const LogTree& tree, int workers, int attempt);
    void append(int local_rank, Stream stream, std::string_view bytes);
    // What has no newline yet is a line.
    void finish();
    std::string take_problem();  // as LogFile

private:
    struct Source {
        std::string prefix;
        LineCutter cutter = LineCutter();
    };
    struct Sink {
        LogFile file;
        std::vector<Source> sources = {};  // by local rank; empty: no filter
    };

    const std::vector<std::string>& texts_of(Stream stream) const;
    Sink& sink_of(Stream stream) { return sinks_[stream == Stream::out ? 0 : 1]; }
    bool is_wanted(int local_rank, Stream stream) const;
    void write(Stream stream, const Source& source, std::string_view lines);

    Options options_;
    std::array<Sink, 2> sinks_{};
};

}  // namespace ddp::launcher
