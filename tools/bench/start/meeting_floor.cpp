// meeting_floor N: what no launcher of N ranks avoids. Spawns N copies of this static program; each
// adds its one to a sum in shared memory, waits for the others, and looks at the sum. start.sh
// makes it as large as ddp's worker is.
// meeting_floor exit: does nothing, as a worker that costs no more than to be there.
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#ifndef PADDING_BYTES
#define PADDING_BYTES 1
#endif

// On the disk and mapped, never read.
extern const volatile char padding[PADDING_BYTES];
const volatile char padding[PADDING_BYTES] = {1};

namespace {

struct Meeting {
    std::atomic<int> sum{0};
    std::atomic<int> here{0};
};

void* map(int memory) {
    void* const mapped =
        ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    return mapped == MAP_FAILED ? nullptr : mapped;
}

int rank_main(int memory, int ranks) {
    void* const mapped = map(memory);
    if (mapped == nullptr) return 1;
    auto& meeting = *static_cast<Meeting*>(mapped);
    meeting.sum.fetch_add(1);
    meeting.here.fetch_add(1);
    while (meeting.here.load() < ranks) ::sched_yield();
    return meeting.sum.load() == ranks ? 0 : 1;
}

int spawn_all(char* program, int ranks) {
    const int memory = ::memfd_create("meeting", 0);  // the ranks inherit it
    if (memory < 0 || ::ftruncate(memory, sizeof(Meeting)) != 0) return 1;
    void* const mapped = map(memory);
    if (mapped == nullptr) return 1;
    new (mapped) Meeting;
    std::string number = std::to_string(memory), count = std::to_string(ranks);
    char* const words[] = {program, number.data(), count.data(), nullptr};
    for (int rank = 0; rank < ranks; ++rank) {
        pid_t pid = -1;
        if (::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, words, environ) != 0) return 1;
    }
    int failed = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        int status = 0;
        if (::wait(&status) < 0 || status != 0) ++failed;
    }
    return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3) return rank_main(std::atoi(argv[1]), std::atoi(argv[2]));
    if (argc != 2) return 2;
    if (std::string(argv[1]) == "exit") return 0;
    return spawn_all(argv[0], std::atoi(argv[1]));
}
