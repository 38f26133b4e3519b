// RunDoor: where a running job can be asked how it is. Who connects to its socket in the run folder
// (run_folder.hpp) gets one byte with one descriptor: of a sealed memfd, the job as JSON. So the
// agent never waits for who asks, however much there is to say. When the job has ended, the last
// view of it stays there as a file. No job fails for want of all this.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/inspect/run_folder.hpp"
#include "launcher/inspect/run_view.hpp"
#include "launcher/process/poller.hpp"

#include <optional>
#include <string>

namespace ddp::launcher {

class RunDoor {
public:
    // Closed. `tag`: of its events in `events`, at which take_guest() is to be called.
    RunDoor(Poller& events, Poller::Tag tag) : events_(events), tag_(tag) {}
    ~RunDoor() { close(); }
    RunDoor(const RunDoor&) = delete;
    RunDoor& operator=(const RunDoor&) = delete;

    // Does nothing where it is open. Where it cannot be it stays closed, and a line at level debug
    // says why.
    void open(RunFacts facts);
    // One who waits, to be answered; invalid: nobody does.
    base::UniqueFd take_guest();
    // `view`: nothing: no attempt runs, and the last one's is given.
    void answer(const base::UniqueFd& guest, const std::optional<RunView>& view) const;
    // An attempt has ended: what it leaves to be seen.
    void note_end(RunView view, std::string report = "");
    // What is given where no attempt runs.
    const RunView& last_view() const { return last_; }
    // The job has. Nothing: its front is gone, and nobody was told an exit code.
    void end(std::optional<int> exit_code);

private:
    void close();

    Poller& events_;
    Poller::Tag tag_;
    RunFacts facts_;
    std::optional<RunFolder> folder_;
    std::string name_;
    base::UniqueFd socket_;     // invalid: it is closed
    base::UniqueFd last_view_;  // empty until the job ends; made while there is time
    RunView last_;
    RunEnd end_;
};

}  // namespace ddp::launcher
