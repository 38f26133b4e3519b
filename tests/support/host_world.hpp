// Several hosts on one machine, made of namespaces, so that tests run one ddp-launch per host as
// one job and cut, delay, freeze or power off a host. Host 1 is named h1 and has the addresses
// 10.77.0.1 and fd77::1. Each host has its own network, host name, PIDs with /proc, IPC, /dev/shm,
// /etc/hosts and boot id; files and users are the machine's. A bridge in a namespace of its own
// joins them. Needs no root: then all of it is in one user namespace.
// Invariant: nothing of it is seen on the machine's network, and nothing of it outlives the object
// or the test process, however that ends.
#pragma once

#include "base/unique_fd.hpp"
#include "support/host_program.hpp"

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddp::testing {

class HostWorld {
public:
    using Words = HostProgram::Words;

    // Why this machine allows no such world (skip the test); nothing where it does. Asked of other
    // programs, so that a world that cannot be made fails its test instead of skipping it.
    static std::optional<std::string> unavailable();
    static bool has_ipv6();  // where the kernel has none, hosts have IPv4 alone

    // Throws std::runtime_error, as all functions below do when a command of theirs fails. Hosts
    // are numbered from 1. The thread that makes a world must not end before it.
    explicit HostWorld(int hosts);
    ~HostWorld();
    HostWorld(const HostWorld&) = delete;
    HostWorld& operator=(const HostWorld&) = delete;

    int size() const { return static_cast<int>(hosts_.size()); }
    static std::string name(int host);      // "h1", which means the IPv4 address
    static std::string name_v6(int host);   // "h1-v6", which means the IPv6 address
    static std::string address(int host);   // "10.77.0.1"
    static std::string address6(int host);  // "fd77::1"

    // Starts a program there, in the test's current folder and environment, with "NAME=value"s on
    // top of it; or a function of the test, whose value is the exit code. It sees getppid() 0.
    // The program ends with its object, and what it has started at the latest with the world.
    HostProgram run(int host, Words words, Words environment = {});
    HostProgram run(int host, const std::function<int()>& body);

    // A command that stands in for ssh (rsh_server.hpp): with HOST WORDS... it runs the words
    // there. 255 where that host is off. To be run on any host, until power_on(): then ask again.
    // Its end is no end of what it runs.
    std::string rsh();

    // All processes there, as the test sees their numbers, those in PID namespaces within, too;
    // not the host's first process, nor zombies. Empty when it is off.
    std::vector<pid_t> pids_on(int host) const;
    int count_on(int host, const std::string& comm) const;  // those named so: at most 15 bytes

    // Frames from and to the host are lost, and nobody is told: its link stays up.
    void cut(int host);
    // The host sees that its link is down: no carrier.
    void unplug(int host);
    // After cut() and unplug().
    void mend(int host);
    // Every frame from and to the host takes so much longer: a round trip, twice that. Frames keep
    // their order. A process carries them, so no kernel lacks it. Frames on their way when it
    // changes are lost. Zero: as before.
    // Of so many frames one may be lost, too.
    void delay(int host, std::chrono::milliseconds, int loses_one_of = 0);

    // The power fails: first its link is cut, so that no FIN or RST gets out, then all of its
    // processes are killed. Returns when they have ended.
    void power_off(int host);
    // It starts again: an empty host with the same name and addresses, linked and without delay.
    void power_on(int host);
    bool is_on(int host) const { return at(host).first.has_value(); }

    // SIGSTOP to all its processes, until all have stopped; the kernel there goes on to answer.
    void freeze(int host);
    void thaw(int host);  // SIGCONT to all

private:
    struct Host {
        std::optional<HostProgram> first;    // the first process of its PID namespace; none: off
        std::optional<HostProgram> delayer;  // carries its frames; none: no delay
        bool is_cut = false;
    };

    Host& at(int host) { return hosts_.at(static_cast<std::size_t>(host) - 1); }
    const Host& at(int host) const { return hosts_.at(static_cast<std::size_t>(host) - 1); }
    void make_hub();
    HostProgram start_host(int host) const;
    void link(int first, int last);  // these hosts, just started, with the bridge
    void plug_in(int host);          // unless it is cut
    void on_the_hub(const std::string& ip_commands) const;
    void forget_on_the_hub(const std::string& device) const;  // whether it is there or not
    bool enter_hub() const;
    void start_rsh(const std::string& socket);
    std::function<bool()> entering(int host) const;
    std::string hosts_file() const;

    base::UniqueFd user_;  // the namespace of all; none: root made the world without
    base::UniqueFd hub_;   // the network namespace of the bridge
    std::vector<Host> hosts_;
    std::optional<HostProgram> rsh_;  // the server
    std::string rsh_folder_;
};

}  // namespace ddp::testing
