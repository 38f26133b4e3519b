// Runs a program for which some system calls do not exist, as under an old kernel (ENOSYS) or a
// container's seccomp profile (EPERM):  without_calls EPERM|ENOSYS CALL[,CALL] program args...
// Ends with 97 where seccomp filters cannot be had.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

const std::map<std::string, unsigned> calls{{"pidfd_open", SYS_pidfd_open},
                                            {"pidfd_send_signal", SYS_pidfd_send_signal},
                                            {"close_range", SYS_close_range}};

sock_filter statement(unsigned code, unsigned value) {
    return {static_cast<unsigned short>(code), 0, 0, value};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 98;
    const unsigned error = std::strcmp(argv[1], "EPERM") == 0 ? EPERM : ENOSYS;
    std::vector<sock_filter> program{
        statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    std::istringstream names(argv[2]);
    for (std::string name; std::getline(names, name, ',');) {
        program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, calls.at(name)});
        program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
    }
    program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        std::perror("seccomp");
        return 97;
    }
    ::execvp(argv[3], argv + 3);
    std::perror(argv[3]);
    return 96;
}
