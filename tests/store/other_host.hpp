// Another host, as far as sockets see: a network namespace with a cable (veth(4)) to this one.
// For the body of in_own_network(), whose namespace is this host.
#pragma once

#include "base/deadline.hpp"
#include "base/net/address.hpp"
#include "base/unique_fd.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::store_test {

// One request to rtnetlink(7), built in place.
class RouteRequest {
public:
    template <class Body>
    RouteRequest(std::uint16_t type, std::uint16_t flags, const Body& body) {
        nlmsghdr header{};
        header.nlmsg_type = type;
        header.nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST | NLM_F_ACK);
        append(&header, sizeof header);
        append(&body, sizeof body);
    }
    void add(std::uint16_t type, const void* data, std::size_t size) {
        const auto at = open(type);
        append(data, size);
        close(at);
    }
    void add(std::uint16_t type, const std::string& text) {
        add(type, text.c_str(), text.size() + 1);
    }
    std::size_t open(std::uint16_t type) {
        const std::size_t at = bytes_.size();
        const rtattr attribute{0, type};
        append(&attribute, sizeof attribute);
        return at;
    }
    void close(std::size_t at) {
        const auto length = static_cast<unsigned short>(bytes_.size() - at);
        std::memcpy(&bytes_[at], &length, sizeof length);
        append(nullptr, 0);
    }
    void append(const void* data, std::size_t size) {
        if (size > 0) bytes_.append(static_cast<const char*>(data), size);
        bytes_.resize(NLMSG_ALIGN(bytes_.size()));
    }
    // In the namespace that this thread is in now.
    bool send() {
        const auto length = static_cast<std::uint32_t>(bytes_.size());
        std::memcpy(bytes_.data(), &length, sizeof length);
        const base::UniqueFd fd{::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)};
        if (::send(fd.get(), bytes_.data(), bytes_.size(), 0) < 0) return false;
        struct {
            nlmsghdr header;
            nlmsgerr error;
            std::array<char, 4096> rest;
        } reply{};
        return ::recv(fd.get(), &reply, sizeof reply, 0) > 0 &&
               reply.header.nlmsg_type == NLMSG_ERROR && reply.error.error == 0;
    }

private:
    std::string bytes_;
};

class OtherHost {
public:
    static constexpr const char* cable = "ddp0";  // its name at either end

    // The addresses of this host's end of the cable, and of the other's; networks of 24 and 64
    // bits. is_there(): whether this host allows it.
    OtherHost(const std::vector<std::string>& here, const std::vector<std::string>& there)
        : here_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
        if (::unshare(CLONE_NEWNET) != 0) return;
        there_.reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
        enter(here_);
        is_there_ = lay_cable() && start(here);
        enter(there_);
        is_there_ = is_there_ && start(there);
        enter(here_);
    }

    bool is_there() const { return is_there_; }
    // This thread is there from now on, with its sockets.
    void go_there() const { enter(there_); }
    // A connection from the other host's address `from` to one of this host.
    base::UniqueFd connect(const std::string& from, const std::string& to,
                           std::uint16_t port) const {
        enter(there_);
        const auto source = base::numeric_address(from);
        const auto target = base::numeric_address(to, port);
        base::UniqueFd fd{::socket(source->family(), SOCK_STREAM | SOCK_CLOEXEC, 0)};
        const bool connected = ::bind(fd.get(), source->generic(), source->size) == 0 &&
                               ::connect(fd.get(), target->generic(), target->size) == 0;
        EXPECT_TRUE(connected) << from << " to " << to << ": errno " << errno;
        enter(here_);
        return fd;
    }

private:
    static void enter(const base::UniqueFd& network) {
        EXPECT_EQ(::setns(network.get(), CLONE_NEWNET), 0);
    }

    bool lay_cable() const {
        RouteRequest link(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
        link.add(IFLA_IFNAME, std::string(cable));
        const auto info = link.open(IFLA_LINKINFO);
        link.add(IFLA_INFO_KIND, std::string("veth"));
        const auto data = link.open(IFLA_INFO_DATA);
        const auto peer = link.open(VETH_INFO_PEER);
        const ifinfomsg any{};
        link.append(&any, sizeof any);
        link.add(IFLA_IFNAME, std::string(cable));
        const int other = there_.get();
        link.add(IFLA_NET_NS_FD, &other, sizeof other);
        link.close(peer);
        link.close(data);
        link.close(info);
        return link.send();
    }

    // Gives this end its addresses, which can be used at once.
    static bool start(const std::vector<std::string>& addresses) {
        const auto index = ::if_nametoindex(cable);
        for (const std::string& text : addresses) {
            const auto address = base::numeric_address(text);
            const bool v4 = address->family() == AF_INET;
            ifaddrmsg message{};
            message.ifa_family = static_cast<std::uint8_t>(address->family());
            message.ifa_prefixlen = v4 ? 24 : 64;
            message.ifa_flags = v4 ? 0 : IFA_F_NODAD;
            message.ifa_index = index;
            RouteRequest request(RTM_NEWADDR, NLM_F_CREATE, message);
            const void* bytes =
                v4 ? static_cast<const void*>(
                         &reinterpret_cast<const sockaddr_in&>(address->bytes).sin_addr)
                   : &reinterpret_cast<const sockaddr_in6&>(address->bytes).sin6_addr;
            request.add(IFA_LOCAL, bytes, v4 ? 4 : 16);
            request.add(IFA_ADDRESS, bytes, v4 ? 4 : 16);
            if (!request.send()) return false;
        }
        ifinfomsg up{};
        up.ifi_index = static_cast<int>(index);
        up.ifi_flags = up.ifi_change = IFF_UP;
        return RouteRequest(RTM_NEWLINK, 0, up).send();
    }

    base::UniqueFd here_;
    base::UniqueFd there_;
    bool is_there_ = false;
};

}  // namespace ddp::store_test
