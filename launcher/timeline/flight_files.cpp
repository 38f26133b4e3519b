#include "launcher/timeline/flight_files.hpp"

#include "base/replace_file.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/timeline/flight_record.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace ddp::launcher {
namespace {

// The writer's message when all went well; else it says what did not.
constexpr const char* all_written = "written";
// Children that a file system holds, or that have not ended yet.
constexpr std::size_t most_others = 4;

std::chrono::nanoseconds steady_to_wall_clock() {
    return std::chrono::system_clock::now().time_since_epoch() -
           std::chrono::steady_clock::now().time_since_epoch();
}

}  // namespace

void check_flight_files(const Options& options) {
    const std::string& prefix = options.logs.flight_prefix;
    if (prefix.empty()) return;
    check_place("--flight-recorder", prefix, prefix + "0");
    const auto& stops = options.stop.signals_to_handle;
    if (std::ranges::find(stops, options.logs.flight_signal) == stops.end()) return;
    const std::string name = signal_name(options.logs.flight_signal);
    throw UsageError("--flight-recorder: " + name + " stops the job (--signals-to-handle); name " +
                     "another, or none, by --flight-recorder-signal");
}

FlightFiles::FlightFiles(const LogOptions& options)
    : prefix_(options.flight_prefix), signal_(options.flight_signal) {}

FlightFiles::~FlightFiles() {
    if (!writer_) return;
    writer_->end();
    remove_soon(temporaries_);
}

void FlightFiles::begin(const contract::ControlRegion& pages, std::span<const Worker> workers,
                        int first_rank, int world_size, const std::string& why,
                        std::chrono::milliseconds limit) {
    if (!wanted() || is_busy() || workers.empty()) return;
    std::erase_if(others_, [](const auto& one) { return one->living() == 0; });
    why_ = why;
    if (others_.size() >= most_others) {
        result_ = "the file system still holds those before";
        return;
    }
    limit_ = limit;
    ranks_.clear();
    temporaries_.clear();
    std::vector<RecordedRank> records;
    const FlightFacts facts{world_size, steady_to_wall_clock()};
    try {
        for (const Worker& worker : workers) {
            const int rank = first_rank + worker.local_rank;
            ranks_.push_back(rank);
            temporaries_.push_back(temporary_name(path_of(rank)));
            records.push_back({rank, contract::read_page(pages.page(worker.local_rank))});
        }
        writer_ = std::make_unique<ForkedWriter>([&](const ForkedWriter::Tell& tell) {
            const std::vector<std::string> texts = flight_records(records, facts);
            std::string problem;
            std::size_t written = 0;
            for (std::size_t i = 0; i < texts.size(); ++i) {
                const std::string path = path_of(ranks_[i]);
                const int code = base::replace_file(path, texts[i], usual_mode(), temporaries_[i]);
                if (code == 0) ++written;
                if (code != 0 && problem.empty()) problem = path + ": " + std::strerror(code);
            }
            if (problem.empty()) return tell(all_written);
            tell(problem + (written == 0 ? "" : "; " + std::to_string(written) + " others are"));
        });
    } catch (const SystemError& error) {
        result_ = error.what();
    }
}

std::optional<FlightFiles::Clock::time_point> FlightFiles::next() const {
    if (result_) return Clock::now();
    if (!writer_) return std::nullopt;
    return Clock::now() + ForkedWriter::between_looks;
}

std::optional<std::string> FlightFiles::look() {
    if (writer_ && !result_) {
        result_ = writer_->receive();
        if (!result_ && writer_->has_ended()) result_ = "their writer has failed";
        if (!result_ && writer_->age() >= limit_) result_ = "it takes too long";
        if (result_) finish_writer();
    }
    if (!result_) return std::nullopt;
    const std::string result = *std::exchange(result_, std::nullopt);
    if (result == all_written) return "flight records " + why_ + ": " + all_paths();
    return "cannot write the flight records " + why_ + ": " + result;
}

// Nothing half-written stays.
void FlightFiles::finish_writer() {
    writer_->end();
    others_.push_back(std::move(writer_));
    if (*result_ == all_written) return;
    if (auto remover = remove_soon(temporaries_)) others_.push_back(std::move(remover));
}

std::vector<pid_t> FlightFiles::children() const {
    std::vector<pid_t> all;
    if (writer_) all.push_back(writer_->living());
    for (const auto& one : others_) all.push_back(one->living());
    std::erase(all, 0);
    return all;
}

// "/tmp/fr/rank_0", "/tmp/fr/rank_0 to rank_3"
std::string FlightFiles::all_paths() const {
    std::string first = path_of(ranks_.front());
    if (ranks_.size() == 1) return first;
    const std::string last = path_of(ranks_.back());
    return first + " to " + last.substr(last.rfind('/') + 1);
}

}  // namespace ddp::launcher
