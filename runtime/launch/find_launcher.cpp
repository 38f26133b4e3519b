#include "launch/find_launcher.hpp"

#include <ddp/error.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace ddp::launching {
namespace {

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

bool can_run(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
}

std::vector<std::string> candidates(const LauncherSearch& search) {
    std::vector<std::string> paths;
    if (!search.given.empty()) paths.push_back(search.given);
    paths.push_back(search.own_folder + "/ddp-launch");
    std::string_view rest = search.search_path;
    while (!rest.empty()) {
        const std::size_t colon = rest.find(':');
        if (const std::string_view folder = rest.substr(0, colon); !folder.empty()) {
            paths.push_back(std::string(folder) + "/ddp-launch");
        }
        rest.remove_prefix(colon == rest.npos ? rest.size() : colon + 1);
    }
    return paths;
}

}  // namespace

std::string own_program() {
    std::string path(PATH_MAX, '\0');
    const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
    if (length < 0) throw SystemError("launch: read the link /proc/self/exe", errno);
    path.resize(static_cast<std::size_t>(length));
    return path;
}

LauncherSearch launcher_search(const std::string& given) {
    const std::string program = own_program();
    return {.from_environment = variable("DDP_LAUNCH"),
            .given = given,
            .own_folder = program.substr(0, program.rfind('/')),
            .search_path = variable("PATH")};
}

std::string find_launcher(const LauncherSearch& search) {
    if (!search.from_environment.empty()) {
        if (can_run(search.from_environment)) return search.from_environment;
        throw UsageError("launch: DDP_LAUNCH is " + search.from_environment +
                         ", which is no program; set it to the file of ddp-launch, or unset it");
    }
    for (const std::string& path : candidates(search)) {
        if (can_run(path)) return path;
    }
    throw UsageError("launch: ddp-launch is not found: not at " +
                     (search.given.empty() ? "" : search.given + ", not at ") + search.own_folder +
                     "/ddp-launch, not along PATH; link the CMake target ddp::launcher, or set "
                     "DDP_LAUNCH to the file of ddp-launch");
}

}  // namespace ddp::launching
