// A folder is an environment's when a file says so: beside /usr/bin/ddp-launch lies the system's
// Python, which must not win over an environment that the user has activated.
#include "launcher/plan/interpreter.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace ddp::launcher {
namespace {

std::string value_of(const EnvLookup& environment, const char* name) {
    return environment(name).value_or("");
}

std::string python_in(const std::string& folder) {
    for (const char* name : {"python3", "python"}) {
        std::string path = folder + (folder.ends_with('/') ? "" : "/") + name;
        if (::access(path.c_str(), X_OK) == 0) return path;
    }
    return {};
}

bool is_environment(const std::string& root) {
    return ::access((root + "/pyvenv.cfg").c_str(), F_OK) == 0 ||
           ::access((root + "/conda-meta").c_str(), F_OK) == 0;
}

// Of PATH, where a shell has found the name; empty when none has it.
std::string folder_on_path(const std::string& name, std::string_view search_path) {
    for (;;) {
        const std::size_t colon = std::min(search_path.find(':'), search_path.size());
        std::string folder = colon == 0 ? "." : std::string(search_path.substr(0, colon));
        if (::access((folder + "/" + name).c_str(), X_OK) == 0) return folder;
        if (colon == search_path.size()) return {};
        search_path.remove_prefix(colon + 1);
    }
}

std::string own_folder(const std::string& called_as, const EnvLookup& environment) {
    const std::size_t slash = called_as.rfind('/');
    if (slash != called_as.npos) return called_as.substr(0, slash + 1);
    return called_as.empty() ? "" : folder_on_path(called_as, value_of(environment, "PATH"));
}

}  // namespace

std::string find_interpreter(const std::string& called_as, const EnvLookup& environment) {
    std::string chosen = value_of(environment, "PYTHON_EXEC");
    if (!chosen.empty()) return chosen;
    const std::string folder = own_folder(called_as, environment);
    if (!folder.empty() && is_environment(folder + "/..")) chosen = python_in(folder);
    if (!chosen.empty()) return chosen;
    const std::string active = value_of(environment, "VIRTUAL_ENV");
    if (!active.empty()) chosen = python_in(active + "/bin");
    return chosen.empty() ? "python3" : chosen;
}

}  // namespace ddp::launcher
