// A stack of its own for a function that is run piecewise by the thread that owns it. swapcontext
// enters each stack once; after that switching is two jumps and no system call.
#pragma once

#include <ucontext.h>

#include <csetjmp>
#include <functional>
#include <memory>

namespace explorer {

class Fiber {
public:
    Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Begins `body` from now on, leaving what was running where it is: without its destructors.
    void start(const std::function<void()>* body);
    // Until the body calls pause() or returns.
    void resume();
    // In the body.
    void pause();
    bool is_done() const { return body_ == nullptr; }

private:
    static void enter(unsigned high, unsigned low);
    [[noreturn]] void run();
    void switch_out();

    std::unique_ptr<char[]> stack_;
    ucontext_t context_, entry_;
    std::jmp_buf caller_, here_, base_;
    bool is_entered_ = false;
    bool starts_ = false;
    const std::function<void()>* body_ = nullptr;
};

}  // namespace explorer
