#include "support/frame_carrier.hpp"

#include "base/unique_fd.hpp"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <vector>

namespace ddp::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Frame {
    Clock::time_point due;
    int to;
    std::vector<char> bytes;  // after a virtio_net_hdr, which says what is left to offload
};

base::UniqueFd open_device(const std::string& name) {
    base::UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    const int room = 16 << 20;
    sockaddr_ll device{};
    device.sll_family = AF_PACKET;
    device.sll_protocol = htons(ETH_P_ALL);
    device.sll_ifindex = static_cast<int>(::if_nametoindex(name.c_str()));
    if (::setsockopt(fd.get(), SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) != 0 ||
        ::setsockopt(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) != 0 ||
        ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&device), sizeof device) != 0) {
        std::perror(name.c_str());
        return {};
    }
    for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE, SO_RCVBUF, SO_SNDBUF}) {
        // The first two need the machine's root, the others are cut to what the machine allows.
        const int done = ::setsockopt(fd.get(), SOL_SOCKET, option, &room, sizeof room);
        if (done == 0 && option == SO_SNDBUFFORCE) break;
    }
    return fd;
}

void receive(int from, int to, std::chrono::milliseconds later, std::deque<Frame>& frames) {
    std::array<char, 70'000> bytes;
    for (;;) {
        const ssize_t got = ::recv(from, bytes.data(), bytes.size(), 0);
        if (got < 0) return;  // nothing more, or the device is down for now
        frames.push_back({Clock::now() + later, to, {bytes.data(), bytes.data() + got}});
    }
}

}  // namespace

int carry_frames(const std::string& one, const std::string& other, std::chrono::milliseconds later,
                 int loses_one_of, const std::function<void()>& ready) {
    const std::array<base::UniqueFd, 2> fds{open_device(one), open_device(other)};
    if (!fds[0] || !fds[1]) return 1;
    ready();
    std::deque<Frame> frames;
    int carried = 0;
    for (;;) {
        timespec wait{};
        if (!frames.empty()) {
            const auto left = std::max(frames.front().due - Clock::now(), Clock::duration::zero());
            const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
            wait = {seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
        }
        std::array<pollfd, 2> entries{{{fds[0].get(), POLLIN, 0}, {fds[1].get(), POLLIN, 0}}};
        ::ppoll(entries.data(), entries.size(), frames.empty() ? nullptr : &wait, nullptr);
        if (entries[0].revents != 0) receive(fds[0].get(), fds[1].get(), later, frames);
        if (entries[1].revents != 0) receive(fds[1].get(), fds[0].get(), later, frames);
        for (; !frames.empty() && frames.front().due <= Clock::now(); frames.pop_front()) {
            const Frame& frame = frames.front();
            if (loses_one_of != 0 && ++carried % loses_one_of == 0) continue;
            // What does not get through is lost, as on a wire.
            [[maybe_unused]] const ssize_t sent =
                ::send(frame.to, frame.bytes.data(), frame.bytes.size(), 0);
        }
    }
}

}  // namespace ddp::testing
