// The bridge br0 is on the hub, with a device v<N> for each host, whose other end is the host's
// eth0. Where frames are delayed, a process on the hub carries them between v<N> and d<N>, whose
// other end, p<N>, is then the bridge's port.
#include "support/host_world.hpp"

#include "base/deadline.hpp"
#include "base/process/pidfd.hpp"
#include "base/process/process_tree.hpp"
#include "support/frame_carrier.hpp"
#include "support/own_network.hpp"
#include "support/rsh_server.hpp"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace ddp::testing {
namespace {

constexpr int of_a_host = CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC;

bool nothing_to_enter() { return true; }

// The only user of the new namespace is its root.
bool map_root(uid_t user, gid_t group) {
    return write_text("/proc/self/setgroups", "deny") &&
           write_text("/proc/self/uid_map", "0 " + std::to_string(user) + " 1") &&
           write_text("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
}

void allow_ipv6(bool allowed) {
    for (const char* devices : {"all", "default"}) {  // a file that does not exist needs no change
        const std::string folder = std::string("/proc/sys/net/ipv6/conf/") + devices;
        write_text((folder + "/disable_ipv6").c_str(), allowed ? "0" : "1");
    }
}

std::string own_boot_id() {
    const std::string drawn = base::read_small_file("/proc/sys/kernel/random/uuid");
    return drawn.empty() ? "no boot id\n" : drawn;
}

bool make_rooms(const std::string& name, const std::string& hosts_file) {
    return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0 &&
           ::mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, nullptr) == 0 &&
           put_file("/proc/sys/kernel/random/boot_id", own_boot_id()) &&
           put_file("/etc/hosts", hosts_file) &&
           (::access("/etc/nsswitch.conf", F_OK) != 0 ||
            put_file("/etc/nsswitch.conf", "hosts: files\n")) &&
           ::sethostname(name.data(), name.size()) == 0;
}

bool say(const std::string& word) {
    const std::string line = word + "\n";
    return ::write(STDOUT_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

// The kernel sees carriers, and finds the way to an own IPv6 address, in its own time: who asks for
// that address before then waits for a neighbour that has it.
bool is_linked() {
    const base::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::strncpy(request.ifr_name, "eth0", IFNAMSIZ - 1);
    if (::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return false;
    if ((request.ifr_flags & IFF_RUNNING) == 0 || !HostWorld::has_ipv6()) {
        return (request.ifr_flags & IFF_RUNNING) != 0;
    }
    std::ifstream routes("/proc/net/ipv6_route");
    for (std::string line; std::getline(routes, line);) {
        std::istringstream columns(line);
        const std::vector<std::string> words{std::istream_iterator<std::string>(columns), {}};
        const bool is_local = words.size() > 8 && words[8].starts_with('8');  // RTF_LOCAL
        if (is_local && line.starts_with("fd77")) return true;
    }
    return false;
}

// The first process of a host: waits for the others' orphans.
int be_first(const std::string& name, const std::string& hosts_file) {
    if (!make_rooms(name, hosts_file)) {
        std::perror(name.c_str());
        return 1;
    }
    allow_ipv6(true);
    sigset_t child_ended;
    ::sigemptyset(&child_ended);
    ::sigaddset(&child_ended, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child_ended, nullptr);
    // Fails where the test has been killed before this process could be told.
    if (!say("ready")) return 1;
    for (bool linked = false;;) {
        const timespec soon{0, 1'000'000};
        ::sigtimedwait(&child_ended, nullptr, linked ? nullptr : &soon);
        while (::waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        if (!linked && (linked = is_linked())) say("linked");
    }
}

// A host that starts again keeps it, else the others would look for the old one for a minute.
std::string mac_of(int host) {
    std::array<char, 32> digits{};
    std::snprintf(digits.data(), digits.size(), "02:00:0a:4d:00:%02x",
                  static_cast<unsigned>(host) & 0xffU);
    return digits.data();
}

HostProgram start_ip(const std::function<bool()>& enter, const std::string& commands) {
    HostProgram ip(enter, HostProgram::execute({"ip", "-batch", "-"}));
    ip.write(commands);
    ip.close_input();
    return ip;
}

void expect_done(HostProgram& ip, const std::string& commands) {
    const HostProgramResult result = ip.wait();
    if (result.exit_code == 0) return;
    throw std::runtime_error("ip -batch ended with " + std::to_string(result.exit_code) + ": " +
                             result.err + "of\n" + commands);
}

ino_t inode_of(const std::string& path) {
    struct stat about {};
    return ::stat(path.c_str(), &about) == 0 ? about.st_ino : 0;
}

std::string pid_namespace_of(pid_t pid) { return "/proc/" + std::to_string(pid) + "/ns/pid"; }

// Whether the process is in that PID namespace or in one within it.
bool is_within(pid_t pid, ino_t pid_namespace, ino_t own) {
    base::UniqueFd fd(::open(pid_namespace_of(pid).c_str(), O_RDONLY | O_CLOEXEC));
    while (fd) {
        struct stat about {};
        ::fstat(fd.get(), &about);
        if (about.st_ino == pid_namespace) return true;
        if (about.st_ino == own) return false;
        fd.reset(::ioctl(fd.get(), NS_GET_PARENT));
    }
    return false;
}

}  // namespace

std::optional<std::string> HostWorld::unavailable() {
    const std::string attempt =
        "PATH=$PATH:/usr/sbin:/sbin; try() { unshare \"$@\" --net --mount --uts --ipc --pid --fork "
        "--mount-proc sh -c 'mount -t tmpfs none /dev/shm && ip link add br0 type bridge && "
        "ip link add v1 type veth peer name e1' 2>&1; }; ";
    const std::string tries =
        ::geteuid() == 0 ? "try || try --user --map-root-user" : "try --user --map-root-user";
    FILE* const output = ::popen((attempt + tries).c_str(), "r");
    if (output == nullptr) return "popen";
    std::string said;
    for (int byte = std::fgetc(output); byte != EOF; byte = std::fgetc(output)) {
        said.push_back(static_cast<char>(byte));
    }
    if (::pclose(output) == 0) return std::nullopt;
    return "this machine allows no namespaces with a network: " + said;
}

bool HostWorld::has_ipv6() { return ::access("/proc/net/if_inet6", F_OK) == 0; }

std::string HostWorld::name(int host) { return "h" + std::to_string(host); }
std::string HostWorld::name_v6(int host) { return name(host) + "-v6"; }
std::string HostWorld::address(int host) { return "10.77.0." + std::to_string(host); }

std::string HostWorld::address6(int host) {
    std::array<char, 16> digits{};
    std::snprintf(digits.data(), digits.size(), "fd77::%x", static_cast<unsigned>(host));
    return digits.data();
}

HostWorld::HostWorld(int hosts) : hosts_(static_cast<std::size_t>(hosts)) {
    make_hub();
    for (int host = 1; host <= hosts; ++host) at(host).first.emplace(start_host(host));
    link(1, hosts);
}

HostWorld::~HostWorld() {
    for (const Host& host : hosts_) {  // all at once: the death of a namespace takes its time
        if (host.first) host.first->signal(SIGKILL);
        if (host.delayer) host.delayer->signal(SIGKILL);
    }
    std::error_code ignored;
    if (!rsh_folder_.empty()) std::filesystem::remove_all(rsh_folder_, ignored);
}

// A process makes its namespaces; then they are held by descriptors alone.
void HostWorld::make_hub() {
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    HostProgram maker(nothing_to_enter, [user, group] {
        const bool as_root = user == 0 && ::unshare(CLONE_NEWNET) == 0;
        if (!as_root && (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !map_root(user, group))) {
            std::perror("unshare");
            return 1;
        }
        allow_ipv6(false);  // the hub itself says nothing
        std::puts(as_root ? "made as root" : "made as user");
        std::fflush(stdout);
        return ::pause();
    });
    if (!maker.wait_for_output("\n")) throw std::runtime_error("no hub: " + maker.wait().err);
    const std::string folder = "/proc/" + std::to_string(maker.pid()) + "/ns/";
    const bool as_root = maker.out() == "made as root\n";
    if (!as_root) user_.reset(::open((folder + "user").c_str(), O_RDONLY | O_CLOEXEC));
    hub_.reset(::open((folder + "net").c_str(), O_RDONLY | O_CLOEXEC));
    if (!hub_ || (!as_root && !user_)) throw std::runtime_error("no hub: cannot open " + folder);
    on_the_hub("link add br0 type bridge mcast_snooping 0\nlink set br0 up\n");
}

HostProgram HostWorld::start_host(int host) const {
    return {[this] {
                return (!user_ || ::setns(user_.get(), CLONE_NEWUSER) == 0) &&
                       ::unshare(of_a_host) == 0;
            },
            [name = name(host), text = hosts_file()] { return be_first(name, text); }};
}

void HostWorld::link(int first, int last) {
    std::string cables;
    for (int host = first; host <= last; ++host) {
        const std::string device = "v" + std::to_string(host);
        cables += "link add " + device + " type veth peer name eth0 address " + mac_of(host) +
                  " netns " + std::to_string(at(host).first->pid()) + "\nlink set " + device +
                  " master br0 up\n";
    }
    on_the_hub(cables);
    std::vector<HostProgram> running;
    std::vector<std::string> commands;
    for (int host = first; host <= last; ++host) {
        if (!at(host).first->wait_for_output("ready")) {
            throw std::runtime_error("no host " + name(host) + ": " + at(host).first->wait().err);
        }
        commands.push_back("link set lo up\nlink set eth0 up\naddr add " + address(host) +
                           "/24 dev eth0\n");
        if (has_ipv6()) commands.back() += "addr add " + address6(host) + "/64 dev eth0 nodad\n";
        running.push_back(start_ip(entering(host), commands.back()));
    }
    for (std::size_t i = 0; i < running.size(); ++i) expect_done(running[i], commands[i]);
    for (int host = first; host <= last; ++host) {
        if (at(host).first->wait_for_output("linked")) continue;
        throw std::runtime_error(name(host) + " has no link");
    }
}

std::string HostWorld::hosts_file() const {
    std::string text = "127.0.0.1 localhost\n::1 localhost\n";
    for (int host = 1; host <= size(); ++host) {
        text += address(host) + " " + name(host) + "\n";
        if (has_ipv6()) text += address6(host) + " " + name_v6(host) + "\n";
    }
    return text;
}

bool HostWorld::enter_hub() const {
    return (!user_ || ::setns(user_.get(), CLONE_NEWUSER) == 0) &&
           ::setns(hub_.get(), CLONE_NEWNET) == 0;
}

void HostWorld::on_the_hub(const std::string& ip_commands) const {
    HostProgram ip = start_ip([this] { return enter_hub(); }, ip_commands);
    expect_done(ip, ip_commands);
}

std::function<bool()> HostWorld::entering(int host) const {
    if (!is_on(host)) throw std::runtime_error(name(host) + " is off");
    const int kinds = of_a_host | (user_ ? CLONE_NEWUSER : 0);
    return [pid = at(host).first->pid(), kinds] {
        const base::UniqueFd first(base::open_pidfd(pid));
        return ::setns(first.get(), kinds) == 0;
    };
}

HostProgram HostWorld::run(int host, Words words, Words environment) {
    return run(host, HostProgram::execute(std::move(words), std::move(environment)));
}

HostProgram HostWorld::run(int host, const std::function<int()>& body) {
    return {entering(host), body};
}

std::string HostWorld::rsh() {
    if (rsh_folder_.empty()) {
        std::string folder = std::filesystem::temp_directory_path() / "ddp-rsh-XXXXXX";
        if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make " + folder);
        rsh_folder_ = folder;
    }
    const std::string socket = rsh_folder_ + "/socket";
    if (!rsh_) start_rsh(socket);
    return std::string(DDP_TEST_RSH) + " " + socket;
}

void HostWorld::start_rsh(const std::string& socket) {
    std::error_code ignored;
    std::filesystem::remove(socket, ignored);
    // In the server, where it knows the hosts of this moment; those that have gone since cannot be
    // entered.
    const FindHost find =
        [this](const std::string& called) -> std::optional<std::function<bool()>> {
        for (int host = 1; host <= size(); ++host) {
            if (called != name(host)) continue;
            return is_on(host) ? entering(host) : [] { return false; };
        }
        return std::nullopt;
    };
    rsh_.emplace(nothing_to_enter, [socket, find] { return serve_rsh(socket, find); });
    if (!rsh_->wait_for_output("serves")) throw std::runtime_error("no rsh: " + rsh_->wait().err);
}

std::vector<pid_t> HostWorld::pids_on(int host) const {
    std::vector<pid_t> found;
    if (!is_on(host)) return found;
    const pid_t first = at(host).first->pid();
    const ino_t there = inode_of(pid_namespace_of(first));
    const ino_t here = inode_of("/proc/self/ns/pid");
    for (const std::string& entry : base::names_in("/proc")) {
        const pid_t pid = std::atoi(entry.c_str());
        if (pid <= 0 || pid == first || !is_within(pid, there, here)) continue;
        const auto stat = base::stat_of(pid);
        if (stat && stat->state != 'Z' && stat->state != 'X') found.push_back(pid);
    }
    return found;
}

int HostWorld::count_on(int host, const std::string& comm) const {
    const auto pids = pids_on(host);
    return static_cast<int>(std::count_if(pids.begin(), pids.end(), [&](pid_t pid) {
        const auto stat = base::stat_of(pid);
        return stat && stat->name == comm;
    }));
}

void HostWorld::plug_in(int host) {
    const std::string port = (at(host).delayer ? "p" : "v") + std::to_string(host);
    on_the_hub("link set " + port + (at(host).is_cut ? " nomaster\n" : " master br0\n"));
}

void HostWorld::cut(int host) {
    at(host).is_cut = true;
    plug_in(host);
}

void HostWorld::unplug(int host) { on_the_hub("link set v" + std::to_string(host) + " down\n"); }

void HostWorld::mend(int host) {
    at(host).is_cut = false;
    plug_in(host);
    on_the_hub("link set v" + std::to_string(host) + " up\n");
}

void HostWorld::delay(int host, std::chrono::milliseconds later, int loses_one_of) {
    const std::string number = std::to_string(host);
    if (at(host).delayer) {
        at(host).delayer.reset();
        on_the_hub("link del d" + number + "\n");
    }
    if (later > std::chrono::milliseconds::zero()) {
        on_the_hub("link set v" + number + " nomaster\nlink add d" + number +
                   " type veth peer name p" + number + "\nlink set d" + number + " up\nlink set p" +
                   number + " up\n");
        const auto carry = [number, later, loses_one_of] {
            return carry_frames("v" + number, "d" + number, later, loses_one_of, [] {
                std::puts("ready");
                std::fflush(stdout);
            });
        };
        at(host).delayer.emplace([this] { return enter_hub(); }, carry);
        if (!at(host).delayer->wait_for_output("ready")) {
            throw std::runtime_error("no delay: " + at(host).delayer->wait().err);
        }
    }
    plug_in(host);
}

void HostWorld::power_off(int host) {
    if (!is_on(host)) return;
    cut(host);
    at(host).first.reset();
    at(host).delayer.reset();
    // The kernel takes the first along with the host's namespace, when it comes to that.
    forget_on_the_hub("v" + std::to_string(host));
    forget_on_the_hub("d" + std::to_string(host));
    at(host).is_cut = false;
}

void HostWorld::forget_on_the_hub(const std::string& device) const {
    HostProgram ip = start_ip([this] { return enter_hub(); }, "link del " + device + "\n");
    ip.wait();
}

void HostWorld::power_on(int host) {
    if (is_on(host)) return;
    at(host).first.emplace(start_host(host));
    link(host, host);
    rsh_.reset();  // it does not know this host
}

void HostWorld::freeze(int host) {
    const auto deadline = base::Deadline::after(HostProgram::patience);
    for (bool all = false; !all;) {
        if (deadline.passed()) throw std::runtime_error("cannot freeze " + name(host));
        all = true;
        for (const pid_t pid : pids_on(host)) {  // one of them may have forked meanwhile
            const auto stat = base::stat_of(pid);
            if (!stat || stat->state == 'T' || stat->state == 't' || stat->state == 'Z') continue;
            all = false;
            ::kill(pid, SIGSTOP);
        }
        if (!all) ::poll(nullptr, 0, 1);
    }
}

void HostWorld::thaw(int host) {
    for (const pid_t pid : pids_on(host)) ::kill(pid, SIGCONT);
}

}  // namespace ddp::testing
