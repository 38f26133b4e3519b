#include "launcher/inspect/run_door.hpp"

#include "base/log.hpp"
#include "base/net/pass_descriptor.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

bool write_whole(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(fd, text.data(), text.size());
        if (n < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
}

// Sealed, so that who asks need not fear that it changes.
base::UniqueFd memory_with(const std::string& text) {
    base::UniqueFd memory(::memfd_create("ddp-run", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory || !write_whole(memory.get(), text)) return {};
    ::fcntl(memory.get(), F_ADD_SEALS, run_seals | F_SEAL_SEAL);
    return memory;
}

void log_closed(const std::string& why) {
    base::log_debug("launcher", "this job cannot be inspected: " + why);
}

}  // namespace

void RunDoor::open(RunFacts facts) {
    if (socket_) return;
    facts_ = std::move(facts);
    try {
        folder_.emplace(RunFolder::make());
        name_ = make_run_name();
        socket_ = folder_->listen_as(name_);
        events_.add(socket_.get(), EPOLLIN, tag_);
        if (facts_.is_kept) last_view_ = folder_->make_last_view(name_);
        folder_->remove_old_runs();
    } catch (const Error& error) {
        log_closed(error.what());
        close();
    }
}

base::UniqueFd RunDoor::take_guest() {
    if (!socket_) return {};
    base::UniqueFd guest(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!guest && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        // Out of descriptors or memory: who waits would be news for ever.
        log_closed(std::strerror(errno));
        events_.remove(socket_.get());
    }
    return guest;
}

void RunDoor::answer(const base::UniqueFd& guest, const std::optional<RunView>& view) const {
    const std::string text = to_json(facts_, view.value_or(last_), std::nullopt);
    const base::UniqueFd memory = memory_with(text);
    if (memory) base::send_descriptor(guest.get(), memory.get());
}

void RunDoor::note_end(RunView view, std::string report) {
    last_ = std::move(view);
    end_.report = std::move(report);
}

void RunDoor::end(std::optional<int> exit_code) {
    end_.exit_code = exit_code;
    if (!exit_code) end_.report = "its launcher was killed, and the workers with it";
    const bool has_begun = last_.world_size > 0;  // else nobody has come to its coordinator
    if (has_begun && last_view_ && write_whole(last_view_.get(), to_json(facts_, last_, end_))) {
        last_view_.reset();
    }
    close();
}

void RunDoor::close() {
    if (!socket_) return;
    if (last_view_) folder_->remove_last_view(name_);  // there is none
    folder_->remove_socket(name_);
    last_view_.reset();
    socket_.reset();
}

}  // namespace ddp::launcher
