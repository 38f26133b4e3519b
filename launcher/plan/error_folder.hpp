// The folder where workers leave their error files: private (0700), one a job, under TMPDIR. The
// front chooses its unguessable name, the agent makes it, and whichever of them lives removes it:
// both hold this object (the agent's is the fork's copy).
#pragma once

#include <string>

namespace ddp::launcher {

class ErrorFolder {
public:
    ErrorFolder();   // only the name; throws SystemError
    ~ErrorFolder();  // removes the folder with all in it, unless it is abandoned
    ErrorFolder(const ErrorFolder&) = delete;
    ErrorFolder& operator=(const ErrorFolder&) = delete;

    const std::string& path() const { return path_; }
    // Leaves it where it is: the file system may hang.
    void abandon() { abandoned_ = true; }

private:
    std::string path_;
    bool abandoned_ = false;
};

// Where the workers of an attempt leave their error files.
struct ErrorFiles {
    std::string before_rank;
    std::string after_rank;

    std::string of(int local_rank) const {
        return before_rank + std::to_string(local_rank) + after_rank;
    }
};

// <folder>/rank_<local rank>.json
inline ErrorFiles error_files_in(const std::string& folder) { return {folder + "/rank_", ".json"}; }

// <root>/attempt_<attempt>/<local rank>/error.json: in the tree of --log-dir.
inline ErrorFiles error_files_in_tree(const std::string& root, int attempt) {
    return {root + "/attempt_" + std::to_string(attempt) + "/", "/error.json"};
}

// TMPDIR, else /tmp.
std::string temporary_folder();

// Throws SystemError for a folder of another user's (not root's) that is, or lies in, one that
// anybody may have put where it is, as in /tmp: that user could put other files in our files'
// places. Links count as folders. Of what does not exist yet the folder above is looked at.
// `option` is what chooses another.
void refuse_strangers_folder(const std::string& path, const char* option);

// Throws SystemError that names it; also when there is something of that name already.
void make_error_folder(const std::string& path);
// With all in it, if it is there.
void remove_error_folder(const std::string& path) noexcept;

}  // namespace ddp::launcher
