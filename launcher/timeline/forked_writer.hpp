// ForkedWriter: a child of the agent that writes files, as a file system may hang. It tells of each
// by one message.
// Invariant: after end() there is no such child, but one that the kernel cannot end.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

class ForkedWriter {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds between_looks{5};

    // In the child: `work` tells what has become of a file, and ends. Throws SystemError, also
    // where it could not be ended safely, for want of a pidfd.
    using Tell = std::function<void(const std::string& message)>;
    explicit ForkedWriter(const std::function<void(const Tell& tell)>& work);
    ~ForkedWriter() { end(); }
    ForkedWriter(const ForkedWriter&) = delete;
    ForkedWriter& operator=(const ForkedWriter&) = delete;

    // The next message; nothing: there is none now.
    std::optional<std::string> receive();
    // It tells no more.
    bool has_ended() const { return has_ended_; }
    Clock::duration age() const { return Clock::now() - began_; }
    // Kills it, and waits for a moment.
    void end();
    void let_go() { is_killed_ = true; }  // it ends by itself, whatever becomes of this object
    // Its pid while it lives, as one does that the kernel cannot end; else 0.
    pid_t living() const;

private:
    pid_t pid_ = 0;
    base::UniqueFd socket_;
    base::UniqueFd pidfd_;
    Clock::time_point began_ = Clock::now();
    bool has_ended_ = false;
    bool is_killed_ = false;
};

// As any program's files.
::mode_t usual_mode();
// A name for `path`'s text until it is whole.
std::string temporary_name(const std::string& path);
// Removes what writers have left half-written, by a child that may hang where they did, and that
// goes on whatever becomes of what is returned. Null: there can be no such child, and they stay.
std::unique_ptr<ForkedWriter> remove_soon(const std::vector<std::string>& paths);
// Throws UsageError where no file can be put at `path`, a value of that option, and where something
// is there that is none.
void check_place(const char* option, const std::string& value, const std::string& path);

}  // namespace ddp::launcher
