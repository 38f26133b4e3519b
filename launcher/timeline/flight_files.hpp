// FlightFiles: the files of --flight-recorder, one a rank of this host. Written while the job runs
// and when it has failed, by a child of the agent (forked_writer.hpp).
#pragma once

#include "contract/control_page.hpp"
#include "launcher/options/options.hpp"
#include "launcher/timeline/forked_writer.hpp"
#include "launcher/worker/worker.hpp"

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// Throws UsageError where the files cannot be written, and where their signal is to stop the job.
void check_flight_files(const Options& options);

class FlightFiles {
public:
    using Clock = ForkedWriter::Clock;

    // How long writing may take: while the job runs, and at its end, which waits for it.
    static constexpr std::chrono::seconds most_time{10};
    static constexpr std::chrono::seconds most_time_at_end{5};

    explicit FlightFiles(const LogOptions& options);
    ~FlightFiles();
    FlightFiles(const FlightFiles&) = delete;
    FlightFiles& operator=(const FlightFiles&) = delete;

    bool wanted() const { return !prefix_.empty(); }
    bool is_asked_by(int signal) const { return wanted() && signal == signal_; }
    bool is_busy() const { return writer_ || result_; }

    // Begins to write what the workers' pages say now; not while it is busy. `why`: for the user,
    // "on SIGUSR1".
    void begin(const contract::ControlRegion& pages, std::span<const Worker> workers,
               int first_rank, int world_size, const std::string& why,
               std::chrono::milliseconds limit = most_time);
    // What is being written has at most so long, from its beginning.
    void shorten(std::chrono::milliseconds limit) { limit_ = std::min(limit_, limit); }
    // When to look next; nothing: nothing is being written.
    std::optional<Clock::time_point> next() const;
    // What has become of it, for the user; mostly nothing.
    std::optional<std::string> look();
    // Those of its children that live.
    std::vector<pid_t> children() const;

private:
    std::string path_of(int rank) const { return prefix_ + std::to_string(rank); }
    std::string all_paths() const;
    void finish_writer();

    std::string prefix_;
    int signal_;
    std::unique_ptr<ForkedWriter> writer_;
    std::vector<std::unique_ptr<ForkedWriter>> others_;  // removers, and those that are stuck
    std::chrono::milliseconds limit_{most_time};
    std::vector<int> ranks_;                // whose files are being written
    std::vector<std::string> temporaries_;  // their names until then
    std::string why_;
    std::optional<std::string> result_;  // that has not been told yet
};

}  // namespace ddp::launcher
