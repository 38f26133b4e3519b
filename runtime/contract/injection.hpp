// Faults on purpose (--inject): the worker's side. With DDP_INJECT in its environment a rank does
// what the variable says when it publishes a step, in the first start of the workers alone: a drill
// of what a program, a launcher and those who watch them make of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ddp::contract {

inline constexpr const char* injection_variable = "DDP_INJECT";

struct Injection {
    enum class Fault : std::uint8_t {
        kill,      // SIGKILL
        stop,      // SIGSTOP: it waits until somebody lets it go on
        exit,      // the process ends with 1, without a word
        delay,     // it sleeps for 2 s, once
        slow,      // from then on each step takes twice as long
        oom,       // it takes memory until the kernel kills it, and no other process for it
        mismatch,  // it calls a barrier that the others do not
    };
    Fault fault = Fault::kill;
    int rank = 0;  // in the job
    std::int64_t step = 0;
};
// "kill:rank=1@step=100". Throws UsageError that says what is wrong with it.
Injection parse_injection(std::string_view text);

// One thread at a time.
class Injector {
public:
    explicit Injector(std::optional<Injection> due) : due_(due) {}
    // What is asked for of this rank; a variable that makes no sense is logged, and nothing is.
    static Injector from_environment(int rank) noexcept;

    // The rank has come to this step: does what is due. Whether it is to call what the others do
    // not.
    bool come_to(std::int64_t step) noexcept {
        return due_ && step >= due_->step && act(*due_, step);
    }

private:
    bool act(const Injection& injection, std::int64_t step) noexcept;

    std::optional<Injection> due_;
    bool has_begun_ = false;
    std::chrono::steady_clock::time_point last_step_{};
};

}  // namespace ddp::contract
