// The folder in which the jobs of a user can be found, mode 0700: $XDG_RUNTIME_DIR/ddp, else
// ddp-<uid> under TMPDIR. A job has a socket there while it runs, `<name>.live` (run_door.hpp), at
// which nobody listens when its launcher was killed; and `<name>.json`, the last view of it, empty
// until it has ended. The ten newest stay.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddp::launcher {

inline constexpr std::size_t kept_runs = 10;

std::string run_folder_path();
// Those of all users of this host, for root.
std::vector<std::string> run_folder_paths_of_all();

enum class Folders { own, of_all };
// Throws SystemError for a link, for one that others may enter, and of `own` for another user's.
base::UniqueFd open_run_folder(const std::string& path, Folders whose);
// Opens the folder, or makes it. Throws SystemError where there is none to be had that is this
// user's alone.
base::UniqueFd make_run_folder(const std::string& path);

// Of a job that begins now: later names are greater.
std::string make_run_name();

// Names in a folder, the newest first. Empty where there is none, or it cannot be read.
std::vector<std::string> runs_in(const std::string& folder);
// What such a name's files are called, below the folder.
std::string live_file(const std::string& name);
std::string last_file(const std::string& name);

// Connects to a job that runs, without waiting; an invalid fd, and errno says why: ECONNREFUSED:
// its agent is gone; EAGAIN: it does not take anybody in.
// `folder`: as it was opened.
base::UniqueFd connect_to_run(int folder, const std::string& name);
// A socket that listens there. Throws SystemError.
base::UniqueFd listen_as_run(int folder, const std::string& name);

// What is to hold the last view: empty. Throws SystemError.
base::UniqueFd make_last_file(int folder, const std::string& name);

// Leaves the newest ones that have ended, and all that run.
void remove_old_runs(const std::string& folder, int opened);

}  // namespace ddp::launcher
