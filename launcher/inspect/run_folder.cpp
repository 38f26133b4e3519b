#include "launcher/inspect/run_folder.hpp"

#include "base/process/process_tree.hpp"
#include "launcher/plan/error_folder.hpp"
#include "launcher/plan/worker_variables.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::string_view live_ending = ".live";
constexpr std::string_view last_ending = ".json";
// How many may ask at once; more wait in connect().
constexpr int backlog = 16;

// By a path that is short enough for a socket, whatever the folder's is.
sockaddr_un address_of(int folder, const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = "/proc/self/fd/" + std::to_string(folder) + "/" + live_file(name);
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
}

base::UniqueFd make_socket(int flags) {
    return base::UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

}  // namespace

std::string run_folder_path() {
    const char* const given = std::getenv("XDG_RUNTIME_DIR");
    if (given != nullptr && *given == '/') return std::string(given) + "/ddp";
    return temporary_folder() + "/ddp-" + std::to_string(::geteuid());
}

std::vector<std::string> run_folder_paths_of_all() {
    std::vector<std::string> paths;
    for (const std::string& user : base::names_in("/run/user")) {
        paths.push_back("/run/user/" + user + "/ddp");
    }
    const std::string temporary = temporary_folder();
    for (const std::string& name : base::names_in(temporary)) {
        const bool is_one = name.starts_with("ddp-") && name.size() > 4 &&
                            name.find_first_not_of("0123456789", 4) == name.npos;
        if (is_one) paths.push_back(temporary + "/" + name);
    }
    return paths;
}

base::UniqueFd make_run_folder(const std::string& path) {
    if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) throw SystemError(path, errno);
    return open_run_folder(path, Folders::own);
}

base::UniqueFd open_run_folder(const std::string& path, Folders whose) {
    base::UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder) throw SystemError(path, errno);
    struct stat seen {};
    if (::fstat(folder.get(), &seen) != 0) throw SystemError(path, errno);
    const bool is_others = whose == Folders::own && seen.st_uid != ::geteuid();
    if (is_others || (seen.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        throw SystemError(path + " is not this user's alone (mode 0700)", EPERM);
    }
    return folder;
}

std::string make_run_name() {
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    return std::to_string(now.count()) + "-" + make_run_id();
}

std::vector<std::string> runs_in(const std::string& folder) {
    std::vector<std::string> runs;
    for (const std::string& file : base::names_in(folder)) {
        for (const std::string_view ending : {live_ending, last_ending}) {
            if (!file.ends_with(ending)) continue;
            std::string name = file.substr(0, file.size() - ending.size());
            if (name.find_first_not_of("0123456789abcdef-") == name.npos) {
                runs.push_back(std::move(name));
            }
        }
    }
    std::ranges::sort(runs, std::greater());
    runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
    return runs;
}

std::string live_file(const std::string& name) { return name + std::string(live_ending); }
std::string last_file(const std::string& name) { return name + std::string(last_ending); }

base::UniqueFd connect_to_run(int folder, const std::string& name) {
    base::UniqueFd socket = make_socket(SOCK_NONBLOCK);  // who is stopped has a full queue
    const sockaddr_un address = address_of(folder, name);
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    if (socket && ::connect(socket.get(), generic, sizeof address) != 0) {
        const int why = errno;
        socket.reset();
        errno = why;
    }
    return socket;
}

base::UniqueFd listen_as_run(int folder, const std::string& name) {
    base::UniqueFd socket = make_socket(SOCK_NONBLOCK);
    const sockaddr_un address = address_of(folder, name);
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    if (!socket || ::bind(socket.get(), generic, sizeof address) != 0 ||
        ::listen(socket.get(), backlog) != 0) {
        throw SystemError("a socket for inspect", errno);
    }
    return socket;
}

base::UniqueFd make_last_file(int folder, const std::string& name) {
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    base::UniqueFd file(::openat(folder, last_file(name).c_str(), flags, S_IRUSR | S_IWUSR));
    if (!file) throw SystemError("a file for inspect", errno);
    return file;
}

void remove_old_runs(const std::string& folder, int opened) {
    std::size_t kept = 0;
    for (const std::string& name : runs_in(folder)) {
        if (++kept <= kept_runs) continue;
        const base::UniqueFd alive = connect_to_run(opened, name);
        if (alive || (errno != ECONNREFUSED && errno != ENOENT)) continue;
        ::unlinkat(opened, live_file(name).c_str(), 0);
        ::unlinkat(opened, last_file(name).c_str(), 0);
    }
}

}  // namespace ddp::launcher
