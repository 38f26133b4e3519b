// One run of --rsh: a child that runs a command on another host, with a pipe to its stdin and one
// from each of its outputs. It has a session of its own: a Ctrl-C at our terminal is ours to pass
// on, and nobody can be asked for a password.
// Invariant: nothing here waits but the destructor, for a child that it has killed; no other child
// holds an end of these pipes.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/process/exit_status.hpp"

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

class RemoteShell {
public:
    // Runs the first word, along PATH, with the others. One that cannot be run says so on its
    // stderr and ends with 127. It gets SIGTERM when this process ends. Call it in a
    // single-threaded process that ignores SIGPIPE. Throws SystemError.
    explicit RemoteShell(const std::vector<std::string>& words);
    ~RemoteShell();
    RemoteShell(const RemoteShell&) = delete;
    RemoteShell& operator=(const RemoteShell&) = delete;

    // -1 once they have ended, or were closed.
    int input_fd() const { return input_.get(); }
    int output_fd(Stream stream) const { return output_of(stream).get(); }

    // For its stdin; what it does not take now waits for flush(). Dropped once that is closed.
    void send(std::string_view bytes);
    void flush();
    bool wants_to_send() const { return input_ && sent_ < queue_.size(); }
    void close_input() { input_.reset(); }

    // What has come, at most max_read_bytes; nothing when there is none now, or it has ended.
    static constexpr std::size_t max_read_bytes = 64 * 1024;
    std::string read(Stream stream);
    void close_output(Stream stream) { output_of(stream).reset(); }

    void look_for_end();  // after a SIGCHLD
    const std::optional<ExitStatus>& end() const { return end_; }
    void signal(int signal) const;  // nothing once its end was seen

private:
    base::UniqueFd& output_of(Stream stream) { return stream == Stream::out ? out_ : err_; }
    const base::UniqueFd& output_of(Stream stream) const {
        return stream == Stream::out ? out_ : err_;
    }

    pid_t pid_ = -1;
    base::UniqueFd input_;
    base::UniqueFd out_;
    base::UniqueFd err_;
    std::string queue_;
    std::size_t sent_ = 0;
    std::optional<ExitStatus> end_;
};

}  // namespace ddp::launcher
