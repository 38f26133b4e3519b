// A path is chosen with 128 random bits, so that mkdir() fails rather than share it with a
// stranger. It is absolute, since workers may go elsewhere before they use it.
#include "launcher/error_folder.hpp"

#include "launcher/worker_variables.hpp"

#include <ddp/error.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace ddp::launcher {

std::string temporary_folder() {
    const char* given = std::getenv("TMPDIR");
    return given != nullptr && *given != '\0' ? given : "/tmp";
}

ErrorFolder::ErrorFolder() {
    const std::string parent = temporary_folder();
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

void refuse_strangers_folder(const std::string& path, const char* option) {
    struct stat folder {};
    struct stat parent {};
    std::string shorter = path;
    while (shorter.size() > 1 && shorter.back() == '/') shorter.pop_back();
    const std::size_t slash = shorter.rfind('/');
    const std::string above = slash == shorter.npos ? "." : shorter.substr(0, slash + 1);
    if (::lstat(shorter.c_str(), &folder) != 0 || ::stat(above.c_str(), &parent) != 0) return;
    const bool trusted = folder.st_uid == ::geteuid() || folder.st_uid == 0;
    if (trusted || (parent.st_mode & S_IWOTH) == 0) return;
    throw SystemError(shorter + " belongs to another user (uid " + std::to_string(folder.st_uid) +
                          ") in a folder that anybody may write to; choose another with " + option,
                      EPERM);
}

void make_error_folder(const std::string& path) {
    if (::mkdir(path.c_str(), S_IRWXU) != 0) {
        throw SystemError(
            "cannot make the folder for error files " + path + " (TMPDIR may name another place)",
            errno);
    }
}

}  // namespace ddp::launcher
