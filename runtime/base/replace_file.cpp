// No fsync: who reads these files runs on the same host at the same time.
#include "base/replace_file.hpp"

#include "base/random.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>

namespace ddp::base {
namespace {

int write_whole(const std::string& path, std::string_view text, ::mode_t mode) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return errno;
    int problem = ::fchmod(fd, mode) != 0 ? errno : 0;  // whatever the umask
    while (!text.empty() && problem == 0) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written > 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        } else if (errno != EINTR) {
            problem = written == 0 ? ENOSPC : errno;
        }
    }
    if (::close(fd) != 0 && problem == 0) problem = errno;
    return problem;
}

}  // namespace

// In a folder that others may write to, a name that can be guessed may be theirs already.
int replace_file(const std::string& path, std::string_view text, ::mode_t mode) {
    std::array<char, 17> random{};
    std::to_chars(random.data(), random.data() + random.size() - 1, random_bits(), 16);
    return replace_file(path, text, mode, path + ".tmp" + random.data());
}

int replace_file(const std::string& path, std::string_view text, ::mode_t mode,
                 const std::string& temporary) {
    int problem = write_whole(temporary, text, mode);
    if (problem == EEXIST) return problem;  // not ours to remove
    if (problem == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) problem = errno;
    if (problem != 0) ::unlink(temporary.c_str());
    return problem;
}

}  // namespace ddp::base
