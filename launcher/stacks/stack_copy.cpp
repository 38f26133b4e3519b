#include "launcher/stacks/stack_copy.hpp"

#include "base/process/process_tree.hpp"

#include <ddp/error.hpp>

#include <elf.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Meanwhile none stands still. On a host with more to do than processors a thread that is to stop
// may wait for one first.
constexpr milliseconds time_to_stop{500};
constexpr milliseconds time_to_get_a_processor{1200};
constexpr microseconds between_looks{200};
constexpr std::uint64_t red_zone = 128;

// The first one first, then by number.
std::vector<pid_t> threads_of(pid_t pid) {
    std::vector<pid_t> threads{pid};
    for (const std::string& name : base::names_in("/proc/" + std::to_string(pid) + "/task")) {
        const pid_t tid = std::atoi(name.c_str());
        if (tid > 0 && tid != pid) threads.push_back(tid);
    }
    std::sort(threads.begin() + 1, threads.end());
    return threads;
}

// Of no file: to read what lies beside a stack may take as long as its file system likes.
using Memory = std::vector<base::Mapping>;
Memory memory_of(pid_t pid) {
    Memory memory;
    base::for_each_mapping(std::to_string(pid), [&](const base::Mapping& one) {
        if (!one.is_of_file()) memory.push_back(one);
        return true;
    });
    return memory;
}

std::uint64_t stack_pointer_of(const Registers& registers) {
#if defined(__aarch64__)
    return registers.sp;
#else
    return registers.rsp;
#endif
}

// Page by page, as far as there are any: a piece that does not lie in memory ends it.
std::size_t copy_memory(pid_t pid, std::uint64_t from, std::byte* to, std::size_t most) {
    constexpr std::size_t page = 4096;
    std::array<iovec, ThreadCopy::most_bytes / page + 1> pieces{};
    std::size_t count = 0;
    for (std::size_t done = 0; done < most; ++count) {
        const std::size_t size =
            std::min(page - static_cast<std::size_t>((from + done) % page), most - done);
        // An address of another process is a number here.
        pieces[count] = {reinterpret_cast<void*>(from + done), size};  // NOLINT
        done += size;
    }
    const iovec local{to, most};
    const ssize_t n = ::process_vm_readv(pid, &local, 1, pieces.data(), count, 0);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
}

void copy_stopped(pid_t pid, const Memory& memory, ThreadCopy& thread) {
    iovec registers{&thread.registers, sizeof(thread.registers)};
    // NOLINTNEXTLINE: the kernel's interface takes a number as a pointer.
    void* const which = reinterpret_cast<void*>(NT_PRSTATUS);
    if (::ptrace(PTRACE_GETREGSET, thread.tid, which, &registers) != 0) return;
    thread.is_copied = true;
    const std::uint64_t stack_pointer = stack_pointer_of(thread.registers);
    const auto stack = std::ranges::find_if(memory, [&](const base::Mapping& one) {
        return stack_pointer >= one.begin && stack_pointer < one.end;
    });
    if (stack == memory.end()) return;
    thread.begin = std::max(stack->begin, stack_pointer - red_zone);
    thread.size =
        copy_memory(pid, thread.begin, thread.bytes.data(),
                    std::min<std::uint64_t>(stack->end - thread.begin, ThreadCopy::most_bytes));
}

// Whether it has stopped, or is gone; it has gone on then. Its stop is looked at, not taken: a
// signal that it was about to get is not lost then, whenever this process is killed.
bool copy_if_stopped(pid_t pid, const Memory& memory, ThreadCopy& thread) {
    siginfo_t info{};
    const auto tid = static_cast<id_t>(thread.tid);
    if (::waitid(P_PID, tid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL) != 0) {
        thread.has_gone = true;
        return true;
    }
    if (info.si_pid == 0) return false;
    if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED) {
        thread.has_gone = true;
        return true;
    }
    copy_stopped(pid, memory, thread);
    constexpr int bits = 8;
    const bool is_own_stop = info.si_status >> bits == PTRACE_EVENT_STOP;
    const auto signal =
        static_cast<std::uintptr_t>(is_own_stop ? 0 : info.si_status & ((1 << bits) - 1));
    ::ptrace(PTRACE_DETACH, thread.tid, nullptr, reinterpret_cast<void*>(signal));  // NOLINT
    return true;
}

void copy_name(pid_t pid, ThreadCopy& thread) {
    std::string name = base::read_small_file("/proc/" + std::to_string(pid) + "/task/" +
                                             std::to_string(thread.tid) + "/comm");
    if (!name.empty() && name.back() == '\n') name.pop_back();
    name.copy(thread.name.data(), thread.name.size() - 1);
}

}  // namespace

struct StackCopy::Shared {
    std::size_t count = 0;  // of those below
    std::size_t all = 0;    // that there are
    // By the child.
    std::atomic<int> refused{0};          // an errno, of the first
    std::atomic<std::uint32_t> beats{0};  // it grows while the child gets on
    std::array<ThreadCopy, most_threads> threads;
};

namespace {

// It waits in the kernel for what nothing interrupts. Another one needs a processor to stop, at
// most.
bool cannot_stop(const ThreadCopy* thread) {
    const auto stat = base::stat_of(thread->tid);
    return !stat || stat->state == 'D';
}

template <class Shared>
void copy_all(pid_t pid, const Memory& memory, Shared& shared) {
    std::vector<ThreadCopy*> waited;
    for (std::size_t i = 0; i < shared.count; ++i) {
        ++shared.beats;
        const pid_t tid = shared.threads[i].tid;
        if (::ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) == 0) {
            ::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
            waited.push_back(&shared.threads[i]);
            continue;
        }
        // Also said of one that ends now, and of a first thread that has ended before the others.
        const int refused = errno;
        const auto stat = base::stat_of(tid);
        const bool is_zombie = stat && stat->state == 'Z';
        shared.threads[i].has_gone = refused == ESRCH || !stat || is_zombie;
        if (i != 0 || is_zombie) continue;
        shared.refused = refused;
        if (refused == EPERM) return;
    }
    const auto begin = Clock::now();
    for (;;) {
        std::erase_if(waited, [&](ThreadCopy* thread) {
            ++shared.beats;
            return copy_if_stopped(pid, memory, *thread);
        });
        const auto took = Clock::now() - begin;
        if (waited.empty() || took >= time_to_get_a_processor) return;
        if (took >= time_to_stop && std::ranges::all_of(waited, cannot_stop)) return;
        std::this_thread::sleep_for(between_looks);
    }
}

// Kills one that has not got on for so long, as then a thread may stand still. Until it is gone:
// who traces the same threads next may not before.
template <class Shared>
void watch(pid_t child, const Shared& shared) {
    constexpr milliseconds time_to_die{100};
    auto since = Clock::now();
    std::uint32_t seen = 0;
    bool is_killed = false;
    while (::waitpid(child, nullptr, WNOHANG) == 0) {
        if (std::exchange(seen, shared.beats.load()) != shared.beats) since = Clock::now();
        const auto quiet = Clock::now() - since;
        if (quiet >= StackCopy::most_time + time_to_die) return;
        if (quiet >= StackCopy::most_time && !std::exchange(is_killed, true)) {
            ::kill(child, SIGKILL);
        }
        std::this_thread::sleep_for(between_looks);
    }
}

}  // namespace

std::optional<std::uint64_t> ThreadCopy::word_at(std::uint64_t address) const {
    std::uint64_t word = 0;
    if (address < begin || size < sizeof(word) || address - begin > size - sizeof(word)) {
        return std::nullopt;
    }
    std::memcpy(&word, bytes.data() + (address - begin), sizeof(word));
    return word;
}

StackCopy::StackCopy(pid_t pid) : pid_(pid) {
    void* const pages = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw SystemError("mmap for copies of stacks", errno);
    shared_.reset(new (pages) Shared);  // of the bytes no page is touched
    const std::vector<pid_t> threads = threads_of(pid);
    shared_->all = threads.size();
    shared_->count = std::min(threads.size(), most_threads);
    for (std::size_t i = 0; i < shared_->count; ++i) {
        shared_->threads[i].tid = threads[i];
        copy_name(pid, shared_->threads[i]);
    }
    const Memory memory = memory_of(pid);
    const pid_t child = ::fork();
    if (child < 0) throw SystemError("fork for copies of stacks", errno);
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        copy_all(pid, memory, *shared_);
        ::_exit(0);
    }
    watch(child, *shared_);
}

void StackCopy::Unmap::operator()(Shared* shared) const { ::munmap(shared, sizeof(Shared)); }

std::size_t StackCopy::size() const { return shared_->count; }

const ThreadCopy& StackCopy::operator[](std::size_t i) const { return shared_->threads[i]; }

std::size_t StackCopy::threads() const { return shared_->all; }

bool StackCopy::is_late() const {
    return shared_->refused == 0 &&
           std::none_of(shared_->threads.begin(),
                        shared_->threads.begin() + static_cast<std::ptrdiff_t>(size()),
                        [](const ThreadCopy& thread) { return thread.is_copied; });
}

bool StackCopy::misses_none() const {
    for (std::size_t i = 0; i < size(); ++i) {
        const ThreadCopy& thread = (*this)[i];
        if (thread.is_copied || thread.has_gone) continue;
        const auto stat = base::stat_of(thread.tid);
        if (stat && stat->state != 'D') return false;
    }
    return true;
}

std::string StackCopy::problem() const {
    const int refused = shared_->refused;
    if (refused == EPERM) return why_not_permitted(pid_);
    if (refused == ESRCH) return "the process has ended";
    if (refused != 0) return std::strerror(refused);
    return is_late() ? "it does not stop in time" : "";
}

std::string why_not_permitted(pid_t pid) {
    const std::string status =
        base::read_small_file("/proc/" + std::to_string(pid) + "/status", 8192);
    const auto tracer = base::number_behind("\nTracerPid:", status).value_or(0);
    if (tracer != 0) return "a debugger holds it (pid " + std::to_string(tracer) + ")";
    const auto user = base::number_behind("\nUid:", status);
    if (::geteuid() != 0 && user && *user != ::geteuid()) return "it is another user's";
    const std::string scope = base::read_small_file("/proc/sys/kernel/yama/ptrace_scope");
    if (!scope.empty() && scope.front() != '0') {
        return std::string("not permitted: kernel.yama.ptrace_scope is ") + scope.front();
    }
    return "not permitted: it is not dumpable, or a container forbids ptrace";
}

}  // namespace ddp::launcher
