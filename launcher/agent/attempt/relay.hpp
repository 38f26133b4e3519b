// Carries what workers write to where it belongs: every byte to the log files, the last lines of
// stderr to the worker's LastLines, and what is to be shown to the front. It never loses a byte: of
// each stream only so much is on its way to the console, and of all together to the log writer;
// beyond that a pipe is left full, and the worker waits in write() as with any pipe. Messages of
// other kinds never queue behind it.
#pragma once

#include "launcher/channel/channel.hpp"
#include "launcher/logs/log_writer.hpp"
#include "launcher/options/options.hpp"
#include "launcher/process/poller.hpp"
#include "launcher/worker/worker.hpp"

#include <array>
#include <vector>

namespace ddp::launcher {

class Relay {
public:
    // All are borrowed and outlive the relay. The workers may still grow.
    Relay(Channel& channel, std::vector<Worker>& workers, const Options& options, LogWriter& logs);

    // Readable when some pipe is.
    int fd() const { return pipes_.fd(); }
    // Has fd(), which `events` has under `tag`, watched no longer, or again.
    void hold(bool hold, Poller& events, Poller::Tag tag);

    // Before the workers of an attempt start: forgets those of the last one. `first_rank`: that of
    // the first of them in the job.
    void begin_attempt(int workers, int first_rank);
    void add_pipes_of(std::size_t worker);
    // Relays what is there now, a bounded amount.
    void relay_ready();
    // The front has shown it.
    void on_shown(const ShownMessage& message);
    // Nobody reads it any more: from now on it goes to the files alone, in all attempts.
    void stop_showing(Stream stream);

    // When no descendant is left that could write: an empty pipe stays empty. Relays what the front
    // and the log writer have room for, stderr first, and closes the pipes that are empty. Whether
    // all are; if not, call it again after on_shown(), or when the log writer is no longer full.
    // Without a front all goes to the files.
    bool drain();

private:
    struct Route {
        bool shown = true;
        std::size_t in_flight = 0;  // bytes that the front has not shown yet
        bool waiting = false;       // not in the poller until it has
    };

    Route& route(std::size_t worker, Stream stream) {
        return routes_[worker][stream == Stream::out ? 0 : 1];
    }
    OutputPipe::State relay(std::size_t worker, Stream stream);
    void send(std::size_t worker, Stream stream, std::string bytes);
    bool drain(std::size_t worker, Stream stream);
    void watch(std::size_t worker, Stream stream);

    Channel& channel_;
    std::vector<Worker>& workers_;
    const Options& options_;
    LogWriter& logs_;
    std::vector<std::array<Route, 2>> routes_;  // by worker
    std::array<bool, 2> closed_{};              // stop_showing() was called
    bool held_ = false;
    Poller pipes_;
};

}  // namespace ddp::launcher
