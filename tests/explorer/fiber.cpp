#include "explorer/fiber.hpp"

#include <cstddef>
#include <cstdint>

namespace explorer {
namespace {

constexpr std::size_t stack_bytes = std::size_t{256} * 1024;

}  // namespace

Fiber::Fiber() : stack_(new char[stack_bytes]) {
    ::getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = stack_bytes;
    context_.uc_link = nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                  static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
}

void Fiber::enter(unsigned high, unsigned low) {
    const std::uintptr_t address = static_cast<std::uintptr_t>(high) << 32 | low;
    reinterpret_cast<Fiber*>(address)->run();
}

void Fiber::run() {
    (void)_setjmp(base_);  // each start() comes here again
    for (;;) {
        if (body_ != nullptr) (*body_)();
        body_ = nullptr;
        switch_out();
    }
}

void Fiber::switch_out() {
    if (_setjmp(here_) == 0) _longjmp(caller_, 1);
}

void Fiber::start(const std::function<void()>* body) {
    body_ = body;
    starts_ = true;
}

void Fiber::resume() {
    if (_setjmp(caller_) != 0) return;
    if (!is_entered_) {
        is_entered_ = true;
        starts_ = false;
        ::swapcontext(&entry_, &context_);
    }
    if (starts_) {
        starts_ = false;
        _longjmp(base_, 1);
    }
    _longjmp(here_, 1);
}

void Fiber::pause() { switch_out(); }

}  // namespace explorer
