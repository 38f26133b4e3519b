// RunFolder: where the jobs of a user can be found: $XDG_RUNTIME_DIR/ddp, else ddp-<uid> under
// TMPDIR, mode 0700. A job has a socket there while it runs, `<name>.live` (run_door.hpp), at which
// nobody listens when its launcher was killed; and `<name>.json`, the last view of it, empty until
// it has ended. The ten newest stay. Whoever else has written there is borne: a name that is none
// is passed over, and what lies in a file's place is opened without waiting.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddp::launcher {

class RunFolder {
public:
    static constexpr std::size_t kept_runs = 10;

    static std::string own_path();
    // Of all users of this host, for root.
    static std::vector<std::string> paths_of_all();

    // This user's, made where it is not there. Throws SystemError.
    static RunFolder make();
    // Throws SystemError: it is not there, or not to be trusted: a link, one that others may enter,
    // or, but for root, another user's.
    explicit RunFolder(std::string path);

    const std::string& path() const { return path_; }
    uid_t owner() const;  // whose it is
    // Names of jobs, the newest first: by their end, or while they have none by their start.
    std::vector<std::string> runs() const;

    // Without waiting; an invalid fd, and errno says why: ECONNREFUSED: its agent is gone; EAGAIN:
    // it lets nobody in.
    base::UniqueFd connect_to(const std::string& run) const;
    // Likewise to be read; an invalid fd where there is none.
    base::UniqueFd open_last_view(const std::string& run) const;

    // Of a job that begins. Both throw SystemError.
    base::UniqueFd listen_as(const std::string& run) const;
    base::UniqueFd make_last_view(const std::string& run) const;

    void remove_socket(const std::string& run) const;
    void remove_last_view(const std::string& run) const;
    // All but the newest, and those that run.
    void remove_old_runs() const;

private:
    std::string path_;
    base::UniqueFd folder_;
};

// Of a job that begins now.
std::string make_run_name();

}  // namespace ddp::launcher
