#include "launcher/logs/log_files.hpp"

#include "launcher/plan/worker_variables.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace ddp::launcher {
namespace {

// Less what umask takes, as torchrun's: others may be let read, never write.
constexpr mode_t file_mode = 0644;
constexpr mode_t folder_mode = 0755;
constexpr std::size_t random_digits = 8;

// A run id is any text; in a path it is one name.
std::string as_name(std::string text) {
    std::replace(text.begin(), text.end(), '/', '_');
    if (text == "." || text == "..") text += '_';
    return text.empty() ? "none" : text;
}

}  // namespace

// Each attempt has folders of its own: what lies in the file's place already, a worker of an
// earlier attempt put there. O_APPEND, as workers may cut their own files.
LogFile::LogFile(std::string path)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                 file_mode)) {
    if (!fd_) throw SystemError("cannot make the log file " + path_ + " (see --log-dir)", errno);
}

void LogFile::write(std::string_view bytes) {
    while (fd_ && !bytes.empty()) {
        const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
        if (written > 0) {
            bytes.remove_prefix(static_cast<std::size_t>(written));
        } else if (written == 0 || errno != EINTR) {
            if (!std::exchange(failed_, true)) {
                problem_ = "cannot write " + path_ + ": " + std::strerror(errno) +
                           "; lines are missing there from now on";
            }
            return;
        }
    }
}

std::string LogFile::take_problem() { return std::exchange(problem_, {}); }

LogTree::LogTree(const std::string& log_dir, const std::string& run_id)
    : LogTree(log_dir, new_run(run_id), "") {}

LogTree::LogTree(const std::string& log_dir, const std::string& run, const std::string& host) {
    if (log_dir.empty() || log_dir == "/dev/null") return;
    // Workers get paths in it and may go elsewhere before they use them.
    std::error_code ignored;
    const std::string folder = std::filesystem::absolute(log_dir, ignored).string();
    run_ = (ignored ? log_dir : folder) + "/" + as_name(run);
    root_ = host.empty() ? run_ : run_ + "/" + as_name(host);
}

std::string LogTree::new_run(const std::string& run_id) {
    return as_name(run_id) + "_" + make_run_id().substr(0, random_digits);
}

std::string LogTree::attempt_folder(int attempt) const {
    return root_ + "/attempt_" + std::to_string(attempt);
}

std::string LogTree::folder(int attempt, int local_rank) const {
    return attempt_folder(attempt) + "/" + std::to_string(local_rank);
}

void LogTree::make_folder(int attempt, int local_rank) const {
    const std::string path = folder(attempt, local_rank);
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(root_).parent_path(), error);
    int problem = error.value();
    for (const std::string& one : {root_, attempt_folder(attempt), path}) {
        if (problem != 0) break;
        if (::mkdir(one.c_str(), folder_mode) != 0 && errno != EEXIST) problem = errno;
    }
    if (problem != 0) {
        throw SystemError("cannot make the log folder " + path + " (see --log-dir)", problem);
    }
}

LogFile LogTree::open(int attempt, int local_rank, Stream stream) const {
    const char* name = stream == Stream::out ? "/stdout.log" : "/stderr.log";
    return LogFile(folder(attempt, local_rank) + name);
}

LogFile LogTree::open_filtered(int attempt, Stream stream) const {
    const char* name = stream == Stream::out ? "/filtered_stdout.log" : "/filtered_stderr.log";
    return LogFile(attempt_folder(attempt) + name);
}

ErrorFiles LogTree::error_files(int attempt) const { return error_files_in_tree(root_, attempt); }

}  // namespace ddp::launcher
