// A path is chosen with 128 random bits, so that mkdir() fails rather than share it with a
// stranger. It is absolute, since workers may go elsewhere before they use it.
#include "launcher/error_folder.hpp"

#include "launcher/worker_variables.hpp"

#include <ddp/error.hpp>

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace ddp::launcher {

ErrorFolder::ErrorFolder() {
    const char* given = std::getenv("TMPDIR");
    const std::string parent = given != nullptr && *given != '\0' ? given : "/tmp";
    std::error_code ignored;
    const std::string folder = std::filesystem::absolute(parent, ignored).string();
    path_ = (ignored ? parent : folder) + "/ddp-launch-" + make_run_id();
}

ErrorFolder::~ErrorFolder() {
    if (!abandoned_) remove_error_folder(path_);
}

void remove_error_folder(const std::string& path) noexcept {
    std::error_code ignored;  // what is gone already is what was wanted
    std::filesystem::remove_all(path, ignored);
}

void make_error_folder(const std::string& path) {
    if (::mkdir(path.c_str(), S_IRWXU) != 0) {
        throw SystemError(
            "cannot make the folder for error files " + path + " (TMPDIR may name another place)",
            errno);
    }
}

}  // namespace ddp::launcher
