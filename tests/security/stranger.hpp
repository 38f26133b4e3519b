// Another local user in a test: a child of the test that gives up root, does what it is told and
// counts in memory that it shares with the test. It is gone with the object.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <new>
#include <stdexcept>
#include <type_traits>

namespace ddp::security_test {

inline constexpr uid_t nobody = 65534;       // the attacker's
inline constexpr uid_t another_user = 1001;  // of a job that root did not start

// Long enough for a busy machine; a test that meets it has failed.
inline constexpr std::chrono::seconds patience{60};

// To become another user takes root; who runs the tests without it skips those that need it.
#define DDP_NEEDS_ROOT() \
    if (::geteuid() != 0) GTEST_SKIP() << "only root can start a program as another user"

// A value that the test and its children see.
template <class T>
class Shared {
    static_assert(std::is_trivially_destructible_v<T>);

public:
    Shared() {
        void* const memory =
            ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("mmap");
        value_ = new (memory) T{};
    }
    ~Shared() { ::munmap(value_, sizeof(T)); }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    T* operator->() const { return value_; }
    T& operator*() const { return *value_; }

private:
    T* value_;
};

class Stranger {
public:
    // Runs `act` as that user, with no other group; the test's own user stays what it is.
    Stranger(uid_t user, const std::function<void()>& act);
    ~Stranger();  // SIGKILL if it still runs
    Stranger(const Stranger&) = delete;
    Stranger& operator=(const Stranger&) = delete;

    // It has not come to its end, good or bad.
    bool runs();
    // Whether it has come to its end by itself.
    bool wait(std::chrono::milliseconds at_most = patience);

private:
    pid_t pid_;  // -1: it has ended
    bool ended_well_ = false;
};

}  // namespace ddp::security_test
