// A network and an /etc/hosts of a test's own, in a child of the test: addresses that the host
// lacks, names that mean several of them, and no name server. All of it ends with the child.
#pragma once

#include "base/deadline.hpp"
#include "base/net/address.hpp"
#include "base/unique_fd.hpp"

#include <gtest/gtest.h>

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace ddp::testing {

// An IPv6 address is "tentative" until a thread of the kernel has looked at it.
inline bool can_be_bound_soon(const std::string& text) {
    const auto address = base::numeric_address(text);
    const base::UniqueFd fd{::socket(address->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    const auto deadline = base::Deadline::after(std::chrono::seconds{10});
    while (::bind(fd.get(), address->generic(), address->size) != 0) {
        if (deadline.passed()) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
}

// Gives the loopback device of this network namespace one address more.
inline bool add_address(const std::string& text) {
    static int aliases = 0;
    const auto address = base::numeric_address(text);
    if (!address) return false;
    const base::UniqueFd fd{::socket(address->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    if (address->family() == AF_INET6) {
        const std::string scope = address->is_link_local() ? "%lo" : "";
        struct {  // in6_ifreq of <linux/ipv6.h>, which does not go with <netinet/in.h>
            in6_addr address;
            std::uint32_t prefix_length;
            int interface_index;
        } request{reinterpret_cast<const sockaddr_in6&>(address->bytes).sin6_addr, 64,
                  static_cast<int>(::if_nametoindex("lo"))};
        return ::ioctl(fd.get(), SIOCSIFADDR, &request) == 0 && can_be_bound_soon(text + scope);
    }
    ifreq request{};
    const std::string name = "lo:" + std::to_string(++aliases);
    std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
    std::memcpy(&request.ifr_addr, address->generic(), sizeof(sockaddr_in));
    if (::ioctl(fd.get(), SIOCSIFADDR, &request) != 0) return false;
    sockaddr_in mask{};  // else the whole network would be this host's
    mask.sin_family = AF_INET;
    mask.sin_addr.s_addr = INADDR_BROADCAST;
    std::memcpy(&request.ifr_netmask, &mask, sizeof mask);
    return ::ioctl(fd.get(), SIOCSIFNETMASK, &request) == 0;
}

inline bool start_loopback() {
    const base::UniqueFd fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    ifreq request{};
    std::strncpy(request.ifr_name, "lo", IFNAMSIZ - 1);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    return ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

// A file at `path`, for this process alone, with that text.
inline bool put_file(const char* path, const std::string& text) {
    char name[] = "/tmp/ddp-own-file-XXXXXX";
    const base::UniqueFd file(::mkstemp(name));
    const bool written =
        ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const bool mounted = written && ::fchmod(file.get(), 0644) == 0 &&
                         ::mount(name, path, nullptr, MS_BIND, nullptr) == 0;
    ::unlink(name);
    return mounted;
}

inline bool write_text(const char* path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    return file.good();
}

struct OwnNetwork {
    std::vector<std::string> addresses{};  // beside 127.0.0.1 and ::1
    std::string hosts{};                   // the text of /etc/hosts
};

// Runs `body`, with its expectations, in such a child; what fails there fails the test. False where
// this host allows no namespaces, or has no IPv6 although an address needs it: skip the test.
template <class Body>
bool in_own_network(const OwnNetwork& network, Body body) {
    constexpr int not_allowed = 77;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::alarm(120);
        // Root may anyway, and keeps its number.
        const int user = ::geteuid() == 0 ? 0 : CLONE_NEWUSER;
        if (::unshare(user | CLONE_NEWNET | CLONE_NEWNS) != 0 ||
            ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            !put_file("/etc/hosts", network.hosts) ||
            !put_file("/etc/nsswitch.conf", "hosts: files\n") || !start_loopback()) {
            ::_exit(not_allowed);
        }
        for (const std::string& one : network.addresses) {
            if (!add_address(one)) ::_exit(not_allowed);
        }
        try {
            body();
        } catch (const std::exception& error) {
            ADD_FAILURE() << "threw: " << error.what();
        }
        std::fflush(nullptr);
        ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == not_allowed) return false;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "see above; status " << status;
    return true;
}

}  // namespace ddp::testing
