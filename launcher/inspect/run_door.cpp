#include "launcher/inspect/run_door.hpp"

#include "base/log.hpp"
#include "launcher/inspect/run_folder.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
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
    ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    return memory;
}

void send_descriptor(int socket, int descriptor) {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);  // else it has gone
}

}  // namespace

RunDoor::RunDoor(RunFacts facts, History history) : facts_(std::move(facts)) {
    try {
        const std::string path = run_folder_path();
        folder_ = make_run_folder(path);
        name_ = make_run_name();
        socket_ = listen_as_run(folder_.get(), name_);
        spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        if (history == History::keep) last_file_ = make_last_file(folder_.get(), name_);
        remove_old_runs(path, folder_.get());
    } catch (const Error& error) {
        base::log_debug("launcher", std::string("this job cannot be inspected: ") + error.what());
    }
}

RunDoor::~RunDoor() {
    if (!socket_) return;
    ::unlinkat(folder_.get(), live_file(name_).c_str(), 0);
    if (last_file_) ::unlinkat(folder_.get(), last_file(name_).c_str(), 0);
}

void RunDoor::receive_guest(const std::optional<RunView>& view) {
    const base::UniqueFd guest(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!guest) return turn_away();
    const base::UniqueFd memory = memory_with(to_json(facts_, view.value_or(last_), std::nullopt));
    if (memory) send_descriptor(guest.get(), memory.get());
}

// Who waits would be news for ever.
void RunDoor::turn_away() {
    if (errno != EMFILE && errno != ENFILE) return;
    spare_.reset();
    base::UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
    spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void RunDoor::note_end(RunView view, std::string report) {
    last_ = std::move(view);
    end_.report = std::move(report);
}

void RunDoor::end(int exit_code) {
    if (!socket_) return;
    end_.exit_code = exit_code;
    if (last_file_) write_whole(last_file_.get(), to_json(facts_, last_, end_));
    ::unlinkat(folder_.get(), live_file(name_).c_str(), 0);
    last_file_.reset();
    socket_.reset();
}

}  // namespace ddp::launcher
