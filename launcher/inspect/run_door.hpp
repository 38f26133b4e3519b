// RunDoor: where a running job can be asked how it is. Who connects to its socket in the run folder
// (run_folder.hpp) gets one byte with one descriptor: of a sealed memfd, the job as JSON. So the
// agent never waits for who asks, however much there is to say. When the job has ended, the last
// view of it stays there as a file.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/inspect/run_view.hpp"

#include <string>

namespace ddp::launcher {

enum class History { keep, none };

class RunDoor {
public:
    // Opens it. Where that cannot be it stays closed, and a line at level debug says why: no job
    // fails for it.
    RunDoor(RunFacts facts, History history);
    ~RunDoor();
    RunDoor(const RunDoor&) = delete;
    RunDoor& operator=(const RunDoor&) = delete;

    // To be watched for EPOLLIN; -1: it is closed.
    int fd() const { return socket_.get(); }

    // Answers one who waits, if anybody does. `view`: nothing: no attempt runs, and the last one's
    // is given.
    void receive_guest(const std::optional<RunView>& view);
    // An attempt has ended: what it leaves to be seen.
    void note_end(RunView view, std::string report = "");
    void end(int exit_code);

private:
    void turn_away();

    RunFacts facts_;
    base::UniqueFd folder_;
    std::string name_;
    base::UniqueFd socket_;
    base::UniqueFd spare_;  // given up to let one in, and out, where there is no other descriptor
    base::UniqueFd last_file_;  // empty until the job ends; made while there is time
    RunView last_;
    RunEnd end_;
};

}  // namespace ddp::launcher
