#include "bench/tune.hpp"

#include "backends/shm/tuning_file.hpp"
#include "base/cpu_features.hpp"
#include "base/replace_file.hpp"
#include "base/unique_fd.hpp"
#include "bench/collective_case.hpp"
#include "bench/report.hpp"

#include <ddp/error.hpp>
#include <ddp/version.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ddp::bench {
namespace {

constexpr const char* variable = "DDP_SHM_TUNING";
constexpr int rounds = 5;
constexpr int rounds_again = 9;  // of a value that is about to be taken, and of all at the end
constexpr int passes = 2;
constexpr double enough = 0.97;    // of a setting's calls together, to be taken
constexpr double too_much = 1.10;  // of one of them
constexpr double worth_a_row = 0.99;

constexpr std::size_t K = 1024;
constexpr std::size_t M = 1024 * K;

struct Call {
    Kind kind;
    std::size_t bytes;
    Path path = Path::user;
};

struct Knob {
    std::vector<const char*> values;  // overrides, of the same names each
    std::vector<Call> calls;          // that it is about
};

// In the order in which they are tried: first what decides how data are copied, then how much of
// them at a time.
std::vector<Knob> knobs() {
    using enum Kind;
    const std::vector<Call> copies{
        {all_reduce, 4 * K}, {all_reduce, 16 * K}, {all_reduce, 64 * K}, {all_reduce, 256 * K},
        {all_reduce, M},     {send_recv, 64 * K},  {all_gather, 64 * K}, {broadcast, M}};
    const std::vector<Call> messages{
        {send_recv, 16 * K},  {send_recv, 64 * K},  {send_recv, 256 * K}, {all_gather, 64 * K},
        {all_reduce, 16 * K}, {all_reduce, 64 * K}, {all_reduce, 256 * K}};
    const std::vector<Call> large{{all_gather, 64 * M}, {all_to_all, 64 * M}, {broadcast, 64 * M},
                                  {gather, 64 * M},     {all_reduce, 64 * M}, {all_gather, 8 * M}};
    const std::vector<Call> middle{{all_reduce, 64 * K}, {all_reduce, 256 * K}, {all_reduce, M},
                                   {all_reduce, 4 * M},  {all_gather, M},       {send_recv, M},
                                   {broadcast, 256 * K}, {reduce_scatter, M}};
    const std::vector<Call> by_address{{send_recv, 256 * K}, {send_recv, M},     {send_recv, 4 * M},
                                       {all_gather, M},      {all_to_all, M},    {gather, 4 * M},
                                       {broadcast, M},       {send_recv, 64 * M}};
    return {
        {{"string_bytes=0", "string_bytes=2K", "string_bytes=16K"}, copies},
        {{"swapped_slots=0", "swapped_slots=1"}, messages},
        {{"rotating_bytes=0", "rotating_bytes=4K,rotating_room=256K",
          "rotating_bytes=4K,rotating_room=512K", "rotating_bytes=4K,rotating_room=2M"},
         messages},
        {{"streaming_output_bytes=0", "streaming_output_bytes=8M", "streaming_output_bytes=32M"},
         large},
        {{"streaming_gain_ps=0", "streaming_gain_ps=70"}, middle},
        {{"claims_outputs=0", "claims_outputs=1"}, middle},
        {{"chunk_bytes=128K,pipelined_bytes=128K", "chunk_bytes=256K,pipelined_bytes=256K",
          "chunk_bytes=512K,pipelined_bytes=256K", "chunk_bytes=512K,pipelined_bytes=512K"},
         middle},
        {{"direct_bytes_max=0,direct_exchange_bytes_max=0",
          "direct_bytes_min=256K,direct_bytes_max=1M,direct_exchange_bytes_max=1M",
          "direct_bytes_min=128K,direct_bytes_max=4M,direct_exchange_bytes_max=4M",
          "direct_bytes_min=128K,direct_bytes_max=1024M,direct_exchange_bytes_max=0",
          "direct_bytes_min=128K,direct_bytes_max=1024M,direct_exchange_bytes_max=1024M"},
         by_address},
        {{"direct_reduction_bytes_max=0", "direct_reduction_bytes_max=1M",
          "direct_reduction_bytes_max=4M"},
         {{all_reduce, 512 * K}, {all_reduce, M}, {all_reduce, 4 * M}, {all_reduce, 8 * M}}},
        {{"one_phase_bytes=4K", "one_phase_bytes=8K", "one_phase_bytes=16K", "one_phase_bytes=32K"},
         {{all_reduce, 6 * K},
          {all_reduce, 12 * K},
          {all_reduce, 24 * K},
          {all_reduce, 6 * K, Path::shared},
          {all_reduce, 12 * K, Path::shared},
          {all_reduce, 24 * K, Path::shared}}},
        {{"spins=0", "spins=50", "spins=200", "spins=1000"},
         {{barrier, 0}, {all_reduce, 64}, {all_reduce, 4 * K}, {all_reduce, 64 * K}}},
    };
}

// NAME=VALUE,...: the last value of each name, in the order in which names came first.
std::string merge(std::string_view before, std::string_view after) {
    std::vector<std::pair<std::string_view, std::string_view>> entries;  // name, and whole
    for (std::string_view list : {before, after}) {
        while (!list.empty()) {
            const std::string_view entry = list.substr(0, list.find(','));
            list.remove_prefix(std::min(entry.size() + 1, list.size()));
            const std::string_view name = entry.substr(0, entry.find('='));
            const auto old = std::find_if(entries.begin(), entries.end(),
                                          [&](const auto& one) { return one.first == name; });
            if (old != entries.end()) {
                old->second = entry;
            } else {
                entries.emplace_back(name, entry);
            }
        }
    }
    std::string merged;
    for (const auto& [name, entry] : entries)
        merged += (merged.empty() ? "" : ",") + std::string(entry);
    return merged;
}

std::string describe(const Call& call) {
    return std::string(info_of(call.kind).name) + " of " + std::to_string(call.bytes) + ", " +
           to_string(call.path);
}

// Of one tuning against the first one: a number a call.
struct Times {
    std::vector<double> us;     // medians over rounds
    std::vector<double> ratio;  // medians of the rounds' ratios

    double together() const {
        double sum = 0;
        for (const double one : ratio) sum += std::log(one);
        return std::exp(sum / static_cast<double>(ratio.size()));
    }
    std::size_t worst() const {
        return static_cast<std::size_t>(std::max_element(ratio.begin(), ratio.end()) -
                                        ratio.begin());
    }
};

class Tuner {
public:
    Tuner(ProcessGroup& group, const Options& options)
        : group_(group), options_(options), speaks_(group.rank() == 0) {}

    // What is best; empty for the built-in table.
    std::string search() {
        say("#%60s  %12s  %9s", "setting", "time / before", "worst");
        std::string best;
        for (int pass = 0; pass < passes; ++pass) {
            const std::string before = best;
            for (const Knob& knob : knobs()) best = try_knob(knob, best);
            if (best == before) break;
        }
        return best;
    }

    // Whether `tuning` is worth a row.
    bool confirm(const std::string& tuning) {
        std::vector<Call> calls;
        for (const Knob& knob : knobs()) {
            if (!is_measured(knob)) continue;
            for (const Call& call : knob.calls) {
                const auto is_same = [&](const Call& other) {
                    return describe(other) == describe(call);
                };
                if (std::none_of(calls.begin(), calls.end(), is_same)) calls.push_back(call);
            }
        }
        std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
            return std::pair(a.kind, a.bytes) < std::pair(b.kind, b.bytes);
        });
        const std::vector<Times> times = measure_by_turns({"", tuning}, calls, rounds_again);
        say("#\n#%41s  %13s  %10s  %6s", "call", "built-in(us)", "tuned(us)", "ratio");
        std::vector<Call> slower;
        for (std::size_t i = 0; i < calls.size(); ++i) {
            say("%42s  %13.2f  %10.2f  %6.2f", describe(calls[i]).c_str(), times[0].us[i],
                times[1].us[i], times[1].ratio[i]);
            if (times[1].ratio[i] > too_much) slower.push_back(calls[i]);
        }
        say("%42s  %13s  %10s  %6.2f", "together", "", "", times[1].together());
        if (times[1].together() > worth_a_row) return false;
        if (slower.empty()) return true;
        const Times again = measure_by_turns({"", tuning}, slower, rounds_again)[1];
        say("%42s  %13s  %10s  %6.2f", ("again, " + describe(slower[again.worst()])).c_str(), "",
            "", again.ratio[again.worst()]);
        return again.ratio[again.worst()] <= too_much;
    }

    template <class... Values>
    void say(const char* pattern, Values... values) const {
        if (!speaks_) return;
        std::printf(pattern, values...);
        std::putchar('\n');
        std::fflush(stdout);
    }

private:
    // A setting that cannot be judged by all that it is about is left alone.
    bool is_measured(const Knob& knob) const {
        return std::all_of(knob.calls.begin(), knob.calls.end(),
                           [&](const Call& call) { return call.bytes <= options_.max_bytes; });
    }

    static bool is_good(const Times& times) {
        return times.together() <= enough && times.ratio[times.worst()] <= too_much;
    }

    std::string try_knob(const Knob& knob, const std::string& before) {
        if (!is_measured(knob)) return before;
        const std::vector<Call>& calls = knob.calls;
        std::vector<std::string> tunings{before};
        for (const char* const value : knob.values) tunings.push_back(merge(before, value));
        const std::vector<Times> times = measure_by_turns(tunings, calls, rounds);
        std::size_t best = 0;
        for (std::size_t i = 1; i < tunings.size(); ++i) {
            if (is_good(times[i]) && times[i].together() < times[best].together()) best = i;
        }
        // The best of several is often the one that chance was with.
        if (best != 0 &&
            !is_good(measure_by_turns({before, tunings[best]}, calls, rounds_again)[1])) {
            best = 0;
        }
        for (std::size_t i = 1; i < tunings.size(); ++i) {
            const std::size_t worst = times[i].worst();
            say("%61s  %13.2f  %9.2f  %s%s", knob.values[i - 1], times[i].together(),
                times[i].ratio[worst], describe(calls[worst]).c_str(), i == best ? "  taken" : "");
        }
        return tunings[best];
    }

    // All ranks get the same numbers: a row's time is a mean over them.
    std::vector<Times> measure_by_turns(const std::vector<std::string>& tunings,
                                        const std::vector<Call>& calls, int how_often) {
        using Samples = std::vector<std::vector<double>>;  // [call][round]
        std::vector<Samples> samples(tunings.size(), Samples(calls.size()));
        for (int round = 0; round < how_often; ++round) {
            for (std::size_t turn = 0; turn < tunings.size(); ++turn) {
                // Another one begins each round.
                const std::size_t i = (turn + static_cast<std::size_t>(round)) % tunings.size();
                ::setenv(variable, tunings[i].c_str(), 1);
                ProcessGroup group = group_.split({.color = 0});
                for (std::size_t c = 0; c < calls.size(); ++c) {
                    samples[i][c].push_back(measure_us(group, calls[c]));
                }
            }
        }
        std::vector<Times> times(tunings.size());
        for (std::size_t i = 0; i < tunings.size(); ++i) {
            for (std::size_t c = 0; c < calls.size(); ++c) {
                std::vector<double> us = samples[i][c];
                std::vector<double> ratios = us;
                for (std::size_t r = 0; r < ratios.size(); ++r) ratios[r] /= samples[0][c][r];
                times[i].us.push_back(quantile(us, 0.5));
                times[i].ratio.push_back(quantile(ratios, 0.5));
            }
        }
        return times;
    }

    double measure_us(ProcessGroup& group, const Call& call) const {
        Options options = options_;
        options.kind = call.kind;
        options.path = call.path;
        options.plan.budget_s = options_.plan.budget_s / 15;
        const Patterns patterns(options, group.size());
        CollectiveCase one_case(group, options, patterns, call.bytes);
        return measure(one_case, one_case.bytes(), options.plan).time_us;
    }

    ProcessGroup& group_;
    const Options& options_;
    bool speaks_;
};

// The file that is tuned into. Rows of other hosts stay; readers see the old file or the new one.
class TuningFile {
public:
    // Refuses now what could not be written after minutes of measuring: writes what is there.
    explicit TuningFile(const std::string& file) : path_(file) {
        std::error_code error;
        const auto target = std::filesystem::canonical(path_, error);  // not the link to it
        if (!error) path_ = target.string();
        const std::string text = read();
        static_cast<void>(shm::find_overrides(text, path_, "", 1, 1));
        write(text);
    }

    void replace_row(const std::string& processor, int ranks, int cores,
                     const std::string& overrides) const {
        // Another host may write at the same time; where files cannot be locked, one row is lost.
        const std::string folder_path = std::filesystem::path(path_).parent_path().string();
        const base::UniqueFd folder(::open(folder_path.empty() ? "." : folder_path.c_str(),
                                           O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (folder) static_cast<void>(::flock(folder.get(), LOCK_EX));
        write(shm::replace_row(read(), path_, processor, ranks, cores, overrides));
    }

private:
    std::string read() const {
        return shm::read_tuning_file(path_, "--tune")
            .value_or(
                "# Written by ddp-bench --tune. Taken with DDP_SHM_TUNING=@FILE, or as\n"
                "# /etc/ddp/shm_tuning where that is not set.\n");
    }

    // With the mode of the old file; a new one is for all to read.
    void write(const std::string& text) const {
        struct stat old {};
        const mode_t mode = ::stat(path_.c_str(), &old) == 0 ? old.st_mode & 0777U : 0644U;
        const int problem = base::replace_file(path_, text, mode);
        if (problem != 0) throw SystemError("--tune: cannot write " + path_, problem);
    }

    std::string path_;
};

}  // namespace

void check_tunable() {
    if (const char* const set = std::getenv(variable); set != nullptr && *set != '\0') {
        throw UsageError(std::string("--tune: ") + variable +
                         " is set; unset it: what is measured is compared with the built-in table");
    }
}

void tune(ProcessGroup& group, const Options& options) {
    if (group.size() < 2) throw UsageError("--tune needs two ranks; this group has one");
    const auto cores = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
    const std::string processor = base::processor_name();
    std::optional<TuningFile> file;
    if (group.rank() == 0) file.emplace(options.tune);
    Tuner tuner(group, options);
    tuner.say("# ddp-bench %s: switch points of backend shm, %d ranks on %d cores, %s", version(),
              group.size(), cores, processor.c_str());
    tuner.say("# host: %s\n#", describe_cpu().c_str());
    std::string best = tuner.search();
    if (!best.empty() && !tuner.confirm(best)) best.clear();
    if (file) file->replace_row(processor, group.size(), cores, best);
    tuner.say("#\n# %s: %s", options.tune.c_str(),
              best.empty() ? "nothing is faster than the built-in table" : best.c_str());
}

}  // namespace ddp::bench
