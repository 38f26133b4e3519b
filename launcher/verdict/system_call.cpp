#include "launcher/verdict/system_call.hpp"

#include "base/printable.hpp"
#include "base/process/process_tree.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace ddp::launcher {
namespace {

enum class First : bool { other, descriptor };

struct Call {
    long number;
    std::string_view name;
    First argument = First::other;
};

// Those in which programs wait.
constexpr std::array calls{
    Call{SYS_read, "read", First::descriptor},
    Call{SYS_write, "write", First::descriptor},
    Call{SYS_readv, "readv", First::descriptor},
    Call{SYS_writev, "writev", First::descriptor},
    Call{SYS_pread64, "pread", First::descriptor},
    Call{SYS_pwrite64, "pwrite", First::descriptor},
    Call{SYS_preadv, "preadv", First::descriptor},
    Call{SYS_pwritev, "pwritev", First::descriptor},
    Call{SYS_sendfile, "sendfile", First::other},
    Call{SYS_recvfrom, "recvfrom", First::descriptor},
    Call{SYS_recvmsg, "recvmsg", First::descriptor},
    Call{SYS_sendto, "sendto", First::descriptor},
    Call{SYS_sendmsg, "sendmsg", First::descriptor},
    Call{SYS_accept, "accept", First::descriptor},
    Call{SYS_accept4, "accept4", First::descriptor},
    Call{SYS_connect, "connect", First::descriptor},
    Call{SYS_fsync, "fsync", First::descriptor},
    Call{SYS_fdatasync, "fdatasync", First::descriptor},
    Call{SYS_ftruncate, "ftruncate", First::descriptor},
    Call{SYS_fallocate, "fallocate", First::descriptor},
    Call{SYS_fcntl, "fcntl", First::descriptor},
    Call{SYS_flock, "flock", First::descriptor},
    Call{SYS_ioctl, "ioctl", First::descriptor},
    Call{SYS_getdents64, "getdents64", First::descriptor},
    Call{SYS_close, "close", First::descriptor},
    Call{SYS_fstat, "fstat", First::descriptor},
    Call{SYS_openat, "openat"},
    Call{SYS_newfstatat, "stat"},
    Call{SYS_statx, "stat"},
    Call{SYS_futex, "futex"},
    Call{SYS_nanosleep, "nanosleep"},
    Call{SYS_clock_nanosleep, "clock_nanosleep"},
    Call{SYS_ppoll, "ppoll"},
    Call{SYS_pselect6, "pselect"},
    Call{SYS_epoll_pwait, "epoll_wait"},
    Call{SYS_io_uring_enter, "io_uring_enter"},
    Call{SYS_restart_syscall, "a timed wait that was interrupted"},
    Call{SYS_wait4, "wait4"},
    Call{SYS_waitid, "waitid"},
    Call{SYS_rt_sigtimedwait, "sigtimedwait"},
    Call{SYS_rt_sigsuspend, "sigsuspend"},
    Call{SYS_munmap, "munmap"},
    Call{SYS_msync, "msync"},
#ifdef SYS_open
    Call{SYS_open, "open"},
    Call{SYS_stat, "stat"},
    Call{SYS_poll, "poll"},
    Call{SYS_select, "select"},
    Call{SYS_epoll_wait, "epoll_wait"},
    Call{SYS_pause, "pause"},
#endif
};

// " of /data/part-7", " of a socket"; empty where there is nothing to say.
std::string described(pid_t pid, unsigned long descriptor) {
    constexpr std::size_t most = 200;
    std::array<char, most> target{};
    const std::string link = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
    const ssize_t n = ::readlink(link.c_str(), target.data(), target.size());
    if (n <= 0) return {};
    const std::string_view name(target.data(), static_cast<std::size_t>(n));
    if (name.starts_with('/')) return " of " + base::printable(name);
    if (name.starts_with("socket:")) return " of a socket";
    return name.starts_with("pipe:") ? " of a pipe" : "";
}

}  // namespace

std::string system_call_of(pid_t pid) {
    // "0 0x3 0x7f71dd93b000 ...", "running", "-1 0x7ff..."
    const std::string text = base::read_small_file("/proc/" + std::to_string(pid) + "/syscall");
    long number = -1;
    const char* const end = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(text.data(), end, number);
    if (problem != std::errc{} || number < 0) return {};
    const auto call = std::ranges::find(calls, number, &Call::number);
    if (call == calls.end()) return "system call " + std::to_string(number);
    std::string words(call->name);
    constexpr std::string_view before = " 0x";
    unsigned long argument = 0;
    if (call->argument == First::descriptor && std::string_view(rest, end).starts_with(before) &&
        std::from_chars(rest + before.size(), end, argument, 16).ec == std::errc{}) {
        words += described(pid, argument);
    }
    return words;
}

}  // namespace ddp::launcher
