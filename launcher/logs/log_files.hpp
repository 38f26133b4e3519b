// The log files of --log-dir, in torchrun's layout:
//
//   <log_dir>/<run_id>_<random>/attempt_<restart>/<local_rank>/{stdout.log, stderr.log, error.json}
//
// and of a job of several hosts, whose folders may be on one file system, with the host after the
// run: <log_dir>/<run_id>_<random>/<host>/attempt_<round - 1>/...
//
// A file gets every byte that its worker wrote, as it was written, whatever the console does. Files
// and folders below log_dir are new, umask decides who else may read them, and nobody else may
// write there.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/plan/error_folder.hpp"

#include <string>
#include <string_view>

namespace ddp::launcher {

// One stream of one worker. An object without a file takes everything and keeps nothing.
class LogFile {
public:
    LogFile() = default;
    // Makes it. Throws SystemError; also when there is something of that name already.
    explicit LogFile(std::string path);

    void write(std::string_view bytes);
    // What went wrong since this was asked last, as a line for the user: said once a file. Later
    // bytes are still tried: a disk may have room again.
    std::string take_problem();

private:
    std::string path_;
    base::UniqueFd fd_;
    std::string problem_;
    bool failed_ = false;
};

class LogTree {
public:
    // No tree for an empty log_dir, nor for /dev/null (torchrun's way to say so). Makes nothing
    // yet; an empty run id is "none" in the path.
    LogTree(const std::string& log_dir, const std::string& run_id);
    // This host's part of the run `run`, a folder that other hosts may share.
    LogTree(const std::string& log_dir, const std::string& run, const std::string& host);
    // "<run_id>_<random>", anew each time.
    static std::string new_run(const std::string& run_id);

    bool wanted() const { return !root_.empty(); }
    const std::string& root() const { return root_; }  // absolute
    // Makes the folder of a worker in an attempt. Throws SystemError.
    void make_folder(int attempt, int local_rank) const;
    // As LogFile.
    LogFile open(int attempt, int local_rank, Stream stream) const;
    // What of all workers together is kept once more; in the folder of an attempt, which is there.
    LogFile open_filtered(int attempt, Stream stream) const;
    // Where workers say why they failed. Only when wanted().
    ErrorFiles error_files(int attempt) const;
    // The end of the job for machines; empty when no tree is wanted.
    std::string report_file() const { return wanted() ? run_ + "/report.json" : ""; }

private:
    std::string attempt_folder(int attempt) const;
    std::string folder(int attempt, int local_rank) const;

    std::string run_;
    std::string root_;  // of this host; in run_, or the same
};

}  // namespace ddp::launcher
