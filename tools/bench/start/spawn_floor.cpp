// spawn_floor N COMMAND...: what no launcher of N processes avoids. Spawns them and waits for all.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const int count = std::atoi(argv[1]);
    for (int i = 0; i < count; ++i) {
        pid_t pid = -1;
        if (::posix_spawn(&pid, argv[2], nullptr, nullptr, argv + 2, environ) != 0) return 1;
    }
    int failed = 0;
    for (int i = 0; i < count; ++i) {
        int status = 0;
        if (::wait(&status) < 0 || status != 0) ++failed;
    }
    return failed == 0 ? 0 : 1;
}
