// A process that sleeps, or uses a processor; it ends with the object.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

namespace ddp::launcher::testing {

class Child {
public:
    enum class Does : std::uint8_t { sleeps, computes };

    explicit Child(Does does = Does::sleeps) : pid_(::fork()) {
        if (pid_ != 0) return;
        volatile bool goes_on = true;
        while (goes_on) {
            if (does == Does::sleeps) ::pause();
        }
        ::_exit(0);
    }
    ~Child() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    pid_t pid() const { return pid_; }

private:
    pid_t pid_;
};

}  // namespace ddp::launcher::testing
