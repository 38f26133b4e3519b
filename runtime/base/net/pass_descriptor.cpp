#include "base/net/pass_descriptor.hpp"

#include <sys/socket.h>

#include <array>
#include <cstring>

namespace ddp::base {
namespace {

// With room for one descriptor, and no second one in the padding.
struct Message {
    iovec data;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr header{};

    explicit Message(std::span<char> bytes) : data{bytes.data(), bytes.size()} {
        header.msg_iov = &data;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = CMSG_LEN(sizeof(int));
    }
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;
};

}  // namespace

bool send_descriptor(int socket, int descriptor) {
    char byte = 0;
    Message message({&byte, 1});
    cmsghdr* const ancillary = CMSG_FIRSTHDR(&message.header);
    ancillary->cmsg_level = SOL_SOCKET;
    ancillary->cmsg_type = SCM_RIGHTS;
    ancillary->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(ancillary), &descriptor, sizeof descriptor);
    return ::sendmsg(socket, &message.header, MSG_NOSIGNAL) >= 0;
}

Received receive_with_descriptor(int socket, std::span<char> data) {
    Message message(data);
    Received received;
    received.bytes = ::recvmsg(socket, &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received.bytes < 0) return received;
    received.is_lost = (message.header.msg_flags & MSG_CTRUNC) != 0;
    const cmsghdr* const ancillary = CMSG_FIRSTHDR(&message.header);
    if (ancillary == nullptr || ancillary->cmsg_level != SOL_SOCKET ||
        ancillary->cmsg_type != SCM_RIGHTS || ancillary->cmsg_len != CMSG_LEN(sizeof(int))) {
        return received;
    }
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(ancillary), sizeof descriptor);
    received.descriptor.reset(descriptor);
    return received;
}

}  // namespace ddp::base
