// StackCopy: the registers and stacks of a process's threads, copied while each is stopped for as
// long as the copying takes. What they mean is worked out afterwards, from the copy (unwinder.hpp).
// Invariant: no thread is stopped by us for more than 100 ms, whatever becomes of the copying: the
// kernel lets go what a process traced that ends.
#pragma once

#include <sys/types.h>
#include <sys/user.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ddp::launcher {

using Registers = user_regs_struct;

struct ThreadCopy {
    // Of the innermost end; what lies above is rarely needed.
    static constexpr std::size_t most_bytes = std::size_t{256} << 10;

    pid_t tid = 0;
    bool has_gone = false;
    bool is_copied = false;          // else it did not stop in time, or has gone
    std::array<char, 16> name = {};  // as the kernel has it
    Registers registers = {};
    std::uint64_t begin = 0;  // the address of `bytes`: a little beyond the stack pointer, where a
                              // function that returns has just let go what its caller needs
    std::size_t size = 0;
    std::array<std::byte, most_bytes> bytes;

    // The eight bytes at an address; nothing: they were not copied.
    std::optional<std::uint64_t> word_at(std::uint64_t address) const;
};

class StackCopy {
public:
    static constexpr std::size_t most_threads = 64;
    static constexpr std::chrono::milliseconds most_time{100};

    // Blocks for a second at most, in a process without other children and threads: a child does
    // it. Throws SystemError where there can be none.
    explicit StackCopy(pid_t pid);

    pid_t pid() const { return pid_; }
    // The first thread is the first of them.
    std::size_t size() const;
    std::size_t threads() const;  // that the process had
    const ThreadCopy& operator[](std::size_t i) const;
    // Empty: there are copies.
    std::string problem() const;
    // There are none, as none of its threads has stopped in time.
    bool is_late() const;
    // But threads that wait for a device or a file system (state D) all are copied.
    bool misses_none() const;

private:
    struct Shared;
    struct Unmap {
        void operator()(Shared* shared) const;
    };
    pid_t pid_;
    std::unique_ptr<Shared, Unmap> shared_;  // with the child that copies
};

// What stands in the way of who may not.
std::string why_not_permitted(pid_t pid);

}  // namespace ddp::launcher
