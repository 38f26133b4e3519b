#include "launcher/timeline/forked_writer.hpp"

#include "base/process/pidfd.hpp"
#include "base/random.hpp"
#include "launcher/process/forked_helper.hpp"

#include <ddp/error.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_to_die{250};

}  // namespace

ForkedWriter::ForkedWriter(const std::function<void(const Tell& tell)>& work) {
    ForkedHelper helper =
        fork_helper("ddp-report", "the writer of files", SOCK_SEQPACKET, [&work](int socket) {
            work([socket](const std::string& message) {
                [[maybe_unused]] const auto sent =
                    ::send(socket, message.data(), message.size(), MSG_NOSIGNAL);
            });
        });
    pid_ = helper.pid;
    socket_ = std::move(helper.socket);
    pidfd_ = base::UniqueFd(base::open_pidfd(pid_));
    if (pidfd_) return;
    const int why = errno;
    ::kill(pid_, SIGKILL);  // nobody has waited for it yet
    throw SystemError("pidfd_open of the writer of files", why);
}

std::optional<std::string> ForkedWriter::receive() {
    std::array<char, 8192> text{};
    const ssize_t got = ::recv(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
    if (got > 0) return std::string(text.data(), static_cast<std::size_t>(got));
    has_ended_ = got == 0 || (errno != EAGAIN && errno != EINTR);
    return std::nullopt;
}

void ForkedWriter::end() {
    if (std::exchange(is_killed_, true)) return;
    has_ended_ = true;
    base::signal_pidfd(pidfd_.get(), SIGKILL);
    const auto until = Clock::now() + time_to_die;
    siginfo_t info{};
    while (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info,
                    WEXITED | WNOHANG) == 0 &&
           info.si_pid == 0 && Clock::now() < until) {
        std::this_thread::sleep_for(milliseconds{1});
    }
}

pid_t ForkedWriter::living() const {
    pollfd end{pidfd_.get(), POLLIN, 0};
    return ::poll(&end, 1, 0) == 0 ? pid_ : 0;
}

::mode_t usual_mode() {
    const ::mode_t mask = ::umask(0);
    ::umask(mask);
    return 0666 & ~mask;
}

std::string temporary_name(const std::string& path) {
    return path + ".tmp" + std::to_string(base::random_bits());
}

std::unique_ptr<ForkedWriter> remove_soon(const std::vector<std::string>& paths) {
    try {
        auto remover = std::make_unique<ForkedWriter>([&](const ForkedWriter::Tell&) {
            for (const std::string& path : paths) ::unlink(path.c_str());
        });
        remover->let_go();
        return remover;
    } catch (const SystemError&) {
        return nullptr;
    }
}

void check_place(const char* option, const std::string& value, const std::string& path) {
    const auto refuse = [&](const std::string& why) {
        throw UsageError(std::string(option) + "=" + value + ": " + why);
    };
    std::error_code ignored;
    const auto folder = std::filesystem::absolute(path, ignored).parent_path();
    if (std::filesystem::exists(path, ignored) &&
        !std::filesystem::is_regular_file(path, ignored)) {
        refuse((path == value ? "" : path + " ") +
               "is no file, but a directory, a device or a pipe");
    }
    if (!std::filesystem::is_directory(folder, ignored)) {
        refuse("there is no directory " + folder.string());
    }
    if (::access(folder.c_str(), W_OK) != 0) {
        refuse("cannot write into " + folder.string() + ": " + std::strerror(errno));
    }
}

}  // namespace ddp::launcher
