// The folder where workers leave their error files: private (0700), one a job, under TMPDIR. The
// front chooses its unguessable name, the agent makes it, and whichever of them lives removes it:
// both hold this object (the agent's is the fork's copy).
#pragma once

#include <string>

namespace ddp::launcher {

class ErrorFolder {
public:
    ErrorFolder();   // only the name; throws SystemError
    ~ErrorFolder();  // removes the folder with all in it
    ErrorFolder(const ErrorFolder&) = delete;
    ErrorFolder& operator=(const ErrorFolder&) = delete;

    const std::string& path() const { return path_; }

private:
    std::string path_;
};

// Throws SystemError that names it; also when there is something of that name already.
void make_error_folder(const std::string& path);
// With all in it, if it is there.
void remove_error_folder(const std::string& path) noexcept;

}  // namespace ddp::launcher
