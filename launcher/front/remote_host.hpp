// One host of a job that this process starts on several: its --rsh, what it has said before its
// launcher began, and how it ended.
// Invariant: nothing that comes before the greeting of the launcher there is taken for the job's.
#pragma once

#include "base/frame.hpp"
#include "base/printable.hpp"
#include "launcher/front/remote_job.hpp"
#include "launcher/front/remote_shell.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace ddp::launcher {

inline constexpr std::array streams{Stream::out, Stream::err};

inline std::string frame_of(const FromStarter& message) {
    std::string frame;
    base::append_frame(frame, encode(message));
    return frame;
}

// A host's launcher, seen from here.
class RemoteHost {
public:
    using Time = std::chrono::steady_clock::time_point;
    enum class State { waiting, starting, running, ended };

    explicit RemoteHost(const RemoteJob::Host& plan) : plan_(&plan) {}

    State state() const { return state_; }
    const std::string& name() const { return plan_->name; }
    RemoteShell* shell() const { return shell_.get(); }
    Time started_at() const { return started_at_; }

    void start(Time now) {
        shell_ = std::make_unique<RemoteShell>(plan_->command);
        started_at_ = now;
        state_ = State::starting;
        shell_->send(frame_of(plan_->part));
    }

    // What of these bytes is the job's, and not of a remote shell that greets its user.
    std::string after_greeting(Stream stream, std::string bytes) {
        Before& before = before_[static_cast<std::size_t>(stream)];
        if (before.is_over) return bytes;
        before.bytes += bytes;
        const std::size_t at = before.bytes.find(plan_->part.greeting);
        const std::size_t newline = at == std::string::npos ? at : before.bytes.find('\n', at);
        if (newline == std::string::npos) {
            constexpr std::size_t most = 64 * 1024;
            if (before.bytes.size() > 2 * most) before.bytes.erase(0, before.bytes.size() - most);
            return {};
        }
        before.is_over = true;
        if (state_ == State::starting) state_ = State::running;
        return std::exchange(before.bytes, {}).substr(newline + 1);
    }
    bool has_greeted(Stream stream) const {
        return before_[static_cast<std::size_t>(stream)].is_over;
    }

    void end(int exit_code) {
        has_begun_ = state_ == State::running;
        state_ = State::ended;
        exit_code_ = exit_code;
        shell_.reset();
    }
    int exit_code() const { return exit_code_; }
    bool has_begun() const { return has_begun_ || state_ == State::running; }
    // Why nothing was started there: the last line of stderr, or of what came at all.
    std::string last_words() const {
        if (!trouble_.empty()) return trouble_;
        for (const Stream stream : {Stream::err, Stream::out}) {
            const std::string& text = before_[static_cast<std::size_t>(stream)].bytes;
            const std::size_t end = text.find_last_not_of(" \t\r\n");
            if (end == text.npos) continue;
            const std::size_t begin = text.rfind('\n', end);
            return base::printable(text.substr(begin + 1, end - begin));
        }
        return "--rsh said nothing";
    }
    void set_trouble(std::string text) { trouble_ = std::move(text); }

    // It was not waited for, and its end says nothing about the job's.
    bool was_cut = false;
    bool is_named = false;  // as one on which nothing was started

private:
    struct Before {
        std::string bytes;
        bool is_over = false;
    };

    const RemoteJob::Host* plan_;
    std::unique_ptr<RemoteShell> shell_;
    State state_ = State::waiting;
    std::array<Before, 2> before_;
    Time started_at_{};
    bool has_begun_ = false;
    int exit_code_ = 0;
    std::string trouble_;
};

}  // namespace ddp::launcher
