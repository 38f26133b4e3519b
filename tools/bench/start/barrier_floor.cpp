// barrier_floor N: what no start of N ranks avoids. Forks them, without an exec; each adds its one
// to a sum in shared memory, waits for the others, and looks at the sum.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

struct Meeting {
    std::atomic<int> sum{0};
    std::atomic<int> here{0};
};

int rank_main(Meeting& meeting, int ranks) {
    meeting.sum.fetch_add(1);
    meeting.here.fetch_add(1);
    while (meeting.here.load() < ranks) ::sched_yield();
    return meeting.sum.load() == ranks ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    const int ranks = std::atoi(argv[1]);
    void* memory =
        ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    auto& meeting = *new (memory) Meeting;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t pid = ::fork();
        if (pid < 0) return 1;
        if (pid == 0) ::_exit(rank_main(meeting, ranks));
    }
    int failed = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        int status = 0;
        if (::wait(&status) < 0 || status != 0) ++failed;
    }
    return failed == 0 ? 0 : 1;
}
