#include "launcher/inspect/run_folder.hpp"

#include "base/net/local_socket.hpp"
#include "base/process/process_tree.hpp"
#include "launcher/plan/error_folder.hpp"
#include "launcher/plan/worker_variables.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::string_view live_ending = ".live";
constexpr std::string_view last_ending = ".json";
// How many may ask at once.
constexpr int backlog = 16;

std::string live_file(const std::string& run) { return run + std::string(live_ending); }
std::string last_file(const std::string& run) { return run + std::string(last_ending); }

// By a path that is short enough for a socket, whatever the folder's is.
std::string socket_path(int folder, const std::string& run) {
    return "/proc/self/fd/" + std::to_string(folder) + "/" + live_file(run);
}

// Milliseconds since 1970.
std::int64_t time_of(int folder, const std::string& run) {
    struct stat last {};
    const bool has_ended =
        ::fstatat(folder, last_file(run).c_str(), &last, AT_SYMLINK_NOFOLLOW) == 0 &&
        last.st_size > 0;
    if (has_ended) return last.st_mtim.tv_sec * 1000 + last.st_mtim.tv_nsec / 1'000'000;
    std::int64_t started = 0;  // as make_run_name() has it
    std::from_chars(run.data(), run.data() + run.size(), started);
    return started;
}

}  // namespace

std::string RunFolder::own_path() {
    const char* const given = std::getenv("XDG_RUNTIME_DIR");
    if (given != nullptr && *given == '/') return std::string(given) + "/ddp";
    return temporary_folder() + "/ddp-" + std::to_string(::geteuid());
}

std::vector<std::string> RunFolder::paths_of_all() {
    std::vector<std::string> paths;
    for (const std::string& user : base::names_in("/run/user")) {
        paths.push_back("/run/user/" + user + "/ddp");
    }
    constexpr std::string_view begin = "ddp-";
    for (const std::string& name : base::names_in(temporary_folder())) {
        const bool is_one = name.starts_with(begin) && name.size() > begin.size() &&
                            name.find_first_not_of("0123456789", begin.size()) == name.npos;
        if (is_one) paths.push_back(temporary_folder() + "/" + name);
    }
    return paths;
}

RunFolder RunFolder::make() {
    std::string path = own_path();
    if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) throw SystemError(path, errno);
    return RunFolder(std::move(path));
}

RunFolder::RunFolder(std::string path)
    : path_(std::move(path)),
      folder_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
    struct stat seen {};
    if (!folder_ || ::fstat(folder_.get(), &seen) != 0) throw SystemError(path_, errno);
    const bool is_others = ::geteuid() != 0 && seen.st_uid != ::geteuid();
    if (is_others || (seen.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        throw SystemError(path_ + " is not this user's alone (mode 0700)", EPERM);
    }
}

uid_t RunFolder::owner() const {
    struct stat status {};
    if (::fstat(folder_.get(), &status) != 0) throw SystemError("stat " + path_, errno);
    return status.st_uid;
}

std::vector<std::string> RunFolder::runs() const {
    std::vector<std::pair<std::int64_t, std::string>> found;
    for (const std::string& file : base::names_in(path_)) {
        for (const std::string_view ending : {live_ending, last_ending}) {
            if (!file.ends_with(ending)) continue;
            std::string run = file.substr(0, file.size() - ending.size());
            if (run.find_first_not_of("0123456789abcdef-") != run.npos) continue;
            found.emplace_back(time_of(folder_.get(), run), std::move(run));
        }
    }
    std::ranges::sort(found, std::greater());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    std::vector<std::string> runs;
    runs.reserve(found.size());
    for (auto& [time, run] : found) runs.push_back(std::move(run));
    return runs;
}

base::UniqueFd RunFolder::connect_to(const std::string& run) const {
    base::UniqueFd socket = base::make_local_socket();
    if (socket && !base::connect_to_file(socket.get(), socket_path(folder_.get(), run))) {
        const int why = errno;
        socket.reset();
        errno = why;
    }
    return socket;
}

base::UniqueFd RunFolder::open_last_view(const std::string& run) const {
    return base::UniqueFd(::openat(folder_.get(), last_file(run).c_str(),
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

base::UniqueFd RunFolder::listen_as(const std::string& run) const {
    base::UniqueFd socket = base::make_local_socket();
    if (!socket || !base::bind_to_file(socket.get(), socket_path(folder_.get(), run)) ||
        ::listen(socket.get(), backlog) != 0) {
        throw SystemError("a socket in " + path_, errno);
    }
    return socket;
}

base::UniqueFd RunFolder::make_last_view(const std::string& run) const {
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    base::UniqueFd file(::openat(folder_.get(), last_file(run).c_str(), flags, S_IRUSR | S_IWUSR));
    if (!file) throw SystemError("a file in " + path_, errno);
    return file;
}

void RunFolder::remove_socket(const std::string& run) const {
    ::unlinkat(folder_.get(), live_file(run).c_str(), 0);
}

void RunFolder::remove_last_view(const std::string& run) const {
    ::unlinkat(folder_.get(), last_file(run).c_str(), 0);
}

void RunFolder::remove_old_runs() const {
    std::size_t kept = 0;
    for (const std::string& run : runs()) {
        if (++kept <= kept_runs) continue;
        const base::UniqueFd alive = connect_to(run);
        if (alive || (errno != ECONNREFUSED && errno != ENOENT)) continue;
        remove_socket(run);
        remove_last_view(run);
    }
}

std::string make_run_name() {
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    return std::to_string(now.count()) + "-" + make_run_id();
}

}  // namespace ddp::launcher
