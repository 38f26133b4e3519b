// A path is chosen with 128 random bits, so that mkdir() fails rather than share it with a
// stranger. It is absolute, since workers may go elsewhere before they use it.
#include "launcher/plan/error_folder.hpp"

#include "launcher/plan/worker_variables.hpp"

#include <ddp/error.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace ddp::launcher {
namespace {

bool is_trusted(const struct stat& file) { return file.st_uid == ::geteuid() || file.st_uid == 0; }

}  // namespace

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
    std::filesystem::path seen;
    std::filesystem::path foreign;  // the first that anybody may have put there
    struct stat here {};
    bool anybody_may_write = false;  // to the folder above
    for (const auto& name : std::filesystem::absolute(path)) {
        struct stat next {};
        if (name.empty() || ::lstat((seen / name).c_str(), &next) != 0) break;  // will be ours
        seen /= name;
        here = next;
        if (anybody_may_write && !is_trusted(here) && foreign.empty()) foreign = seen;
        if (::stat(seen.c_str(), &next) != 0) break;  // where a link leads
        anybody_may_write = (next.st_mode & S_IWOTH) != 0;
    }
    if (foreign.empty() || is_trusted(here)) return;
    throw SystemError(seen.string() + " belongs to another user (uid " +
                          std::to_string(here.st_uid) + "), and anybody may have put " +
                          foreign.string() + " where it is; choose another with " + option,
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
