#include "launcher/stacks/stack_copy.hpp"

#include "base/process/process_tree.hpp"

#include <ddp/error.hpp>

#include <dirent.h>
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
#include <charconv>
#include <csignal>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// What a thread that runs needs to stop; who copies leaves the rest of its time to who waits.
constexpr milliseconds time_to_stop{60};
constexpr microseconds between_looks{200};
constexpr std::uint64_t red_zone = 128;

std::vector<pid_t> threads_of(pid_t pid) {
    std::vector<pid_t> threads{pid};
    const std::string path = "/proc/" + std::to_string(pid) + "/task";
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
    while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
        const std::string_view name = entry->d_name;
        pid_t tid = 0;
        std::from_chars(name.data(), name.data() + name.size(), tid);
        if (tid > 0 && tid != pid) threads.push_back(tid);
    }
    std::sort(threads.begin() + 1, threads.end());
    threads.resize(std::min(threads.size(), StackCopy::most_threads));
    return threads;
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

void copy_stopped(pid_t pid, ThreadCopy& thread) {
    iovec registers{&thread.registers, sizeof(thread.registers)};
    // NOLINTNEXTLINE: the kernel's interface takes a number as a pointer.
    void* const which = reinterpret_cast<void*>(NT_PRSTATUS);
    if (::ptrace(PTRACE_GETREGSET, thread.tid, which, &registers) != 0) return;
    const std::uint64_t stack_pointer = stack_pointer_of(thread.registers);
    for (const std::uint64_t beyond : {red_zone, std::uint64_t{0}}) {
        thread.begin = stack_pointer - beyond;
        thread.size = copy_memory(pid, thread.begin, thread.bytes.data(), ThreadCopy::most_bytes);
        if (thread.size > beyond) break;
    }
    thread.is_copied = true;
}

// Whether it has stopped, or is gone; it has gone on then.
bool copy_if_stopped(pid_t pid, ThreadCopy& thread) {
    int status = 0;
    const pid_t found = ::waitpid(thread.tid, &status, __WALL | WNOHANG);
    if (found == 0) return false;
    if (found < 0 || !WIFSTOPPED(status)) return true;
    copy_stopped(pid, thread);
    // A signal that it was about to get it gets now.
    const bool is_own_stop = status >> 16 == PTRACE_EVENT_STOP;
    const auto signal = static_cast<std::uintptr_t>(is_own_stop ? 0 : WSTOPSIG(status));
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
    std::atomic<std::size_t> count{0};
    std::atomic<int> refused{0};  // an errno
    std::array<ThreadCopy, most_threads> threads;
};

namespace {

template <class Shared>
void copy_all(pid_t pid, Shared& shared) {
    const std::vector<pid_t> threads = threads_of(pid);
    for (std::size_t i = 0; i < threads.size(); ++i) {
        shared.threads[i].tid = threads[i];
        copy_name(pid, shared.threads[i]);
    }
    shared.count = threads.size();
    std::vector<ThreadCopy*> waited;
    for (std::size_t i = 0; i < threads.size(); ++i) {
        if (::ptrace(PTRACE_SEIZE, threads[i], nullptr, nullptr) != 0) {
            if (i == 0) shared.refused = errno;
            if (errno == EPERM) return;
            continue;
        }
        ::ptrace(PTRACE_INTERRUPT, threads[i], nullptr, nullptr);
        waited.push_back(&shared.threads[i]);
    }
    const auto until = Clock::now() + time_to_stop;
    while (!waited.empty() && Clock::now() < until) {
        std::erase_if(waited, [&](ThreadCopy* thread) { return copy_if_stopped(pid, *thread); });
        if (!waited.empty()) std::this_thread::sleep_for(between_looks);
    }
}

void wait_or_kill(pid_t child, milliseconds most) {
    const auto until = Clock::now() + most;
    while (::waitpid(child, nullptr, WNOHANG) == 0) {
        if (Clock::now() >= until) {
            ::kill(child, SIGKILL);
            return;
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
    void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw SystemError("mmap for copies of stacks", errno);
    shared_.reset(new (memory) Shared);  // of the bytes no page is touched
    const pid_t child = ::fork();
    if (child < 0) throw SystemError("fork for copies of stacks", errno);
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        copy_all(pid, *shared_);
        ::_exit(0);
    }
    wait_or_kill(child, most_time);
}

void StackCopy::Unmap::operator()(Shared* shared) const { ::munmap(shared, sizeof(Shared)); }

std::size_t StackCopy::size() const { return std::min(shared_->count.load(), most_threads); }

const ThreadCopy& StackCopy::operator[](std::size_t i) const { return shared_->threads[i]; }

std::string StackCopy::problem() const {
    const auto& threads = shared_->threads;
    if (std::any_of(threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(size()),
                    [](const ThreadCopy& thread) { return thread.is_copied; })) {
        return {};
    }
    const int refused = shared_->refused;
    if (refused == EPERM) return why_not_permitted();
    if (refused == ESRCH) return "the process has ended";
    if (refused != 0) return std::strerror(refused);
    return "it does not stop within " + std::to_string(time_to_stop.count()) + " ms";
}

std::string why_not_permitted() {
    const std::string scope = base::read_small_file("/proc/sys/kernel/yama/ptrace_scope");
    if (scope.empty() || scope.front() == '0') {
        return "not permitted: another debugger holds it, it is another user's or not dumpable, or "
               "a container forbids ptrace";
    }
    return std::string("not permitted: kernel.yama.ptrace_scope is ") + scope.front();
}

}  // namespace ddp::launcher
