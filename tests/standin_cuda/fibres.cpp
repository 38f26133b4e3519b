#include "standin_cuda/fibres.hpp"

#include "base/sanitizers.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(DDP_SANITIZES_ADDRESSES)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(DDP_SANITIZES_THREADS)
#include <sanitizer/tsan_interface.h>
#endif

namespace ddp::standin_cuda {

struct Fibres::Fibre {
    static constexpr std::size_t stack_bytes = std::size_t{64} << 10U;
    std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
    ucontext_t context{};
    unsigned index = 0;
    bool ended = true;
    void* fake_stack = nullptr;
    void* tsan = nullptr;
};

Fibres::Fibres() = default;

Fibres::~Fibres() {
#if defined(DDP_SANITIZES_THREADS)
    for (const auto& one : fibres_) {
        if (one->tsan != nullptr) __tsan_destroy_fiber(one->tsan);
    }
#endif
}

Fibres::Fibre& Fibres::fibre(unsigned index) {
    while (fibres_.size() <= index) {
        fibres_.push_back(std::make_unique<Fibre>());
        fibres_.back()->index = static_cast<unsigned>(fibres_.size()) - 1;
#if defined(DDP_SANITIZES_THREADS)
        fibres_.back()->tsan = __tsan_create_fiber(0);
#endif
    }
    return *fibres_[index];
}

// makecontext passes numbers of int's size.
void Fibres::enter(unsigned high, unsigned low) {
    auto* const self = reinterpret_cast<Fibres*>((static_cast<std::uintptr_t>(high) << 32U) | low);
    Fibre& own = *self->running_;
#if defined(DDP_SANITIZES_ADDRESSES)
    __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_stack_bytes_);
#endif
    (*self->body_)(own.index);
    own.ended = true;
    self->leave(own, true);
}

void Fibres::resume(Fibre& one) {
    running_ = &one;
#if defined(DDP_SANITIZES_ADDRESSES)
    __sanitizer_start_switch_fiber(&caller_fake_stack_, one.stack.get(), Fibre::stack_bytes);
#endif
#if defined(DDP_SANITIZES_THREADS)
    caller_tsan_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(one.tsan, 0);
#endif
    ::swapcontext(&caller_, &one.context);
#if defined(DDP_SANITIZES_ADDRESSES)
    __sanitizer_finish_switch_fiber(caller_fake_stack_, nullptr, nullptr);
#endif
    running_ = nullptr;
}

void Fibres::leave(Fibre& one, [[maybe_unused]] bool for_good) {
#if defined(DDP_SANITIZES_ADDRESSES)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &one.fake_stack, caller_stack_,
                                   caller_stack_bytes_);
#endif
#if defined(DDP_SANITIZES_THREADS)
    __tsan_switch_to_fiber(caller_tsan_, 0);
#endif
    ::swapcontext(&one.context, &caller_);
#if defined(DDP_SANITIZES_ADDRESSES)
    __sanitizer_finish_switch_fiber(one.fake_stack, &caller_stack_, &caller_stack_bytes_);
#endif
}

void Fibres::synchronise() { leave(*running_, false); }

void Fibres::run(unsigned count, const std::function<void(unsigned)>& body) {
    body_ = &body;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    for (unsigned index = 0; index < count; ++index) {
        Fibre& one = fibre(index);
        ::getcontext(&one.context);
        one.context.uc_stack.ss_sp = one.stack.get();
        one.context.uc_stack.ss_size = Fibre::stack_bytes;
        one.context.uc_link = nullptr;
        one.ended = false;
        // The function is of another type: makecontext is older than C++.
        ::makecontext(&one.context, reinterpret_cast<void (*)()>(&Fibres::enter), 2,
                      static_cast<unsigned>(self >> 32U), static_cast<unsigned>(self));
    }
    unsigned ended = 0;
    for (bool backwards = false; ended == 0; backwards = !backwards) {
        for (unsigned step = 0; step < count; ++step) {
            Fibre& one = *fibres_[backwards ? count - 1 - step : step];
            resume(one);
            ended += one.ended ? 1U : 0U;
        }
        if (ended > 0 && ended < count) {
            std::fprintf(stderr,
                         "stand-in CUDA: %u of %u threads of a block ended, and the others "
                         "wait in __syncthreads\n",
                         ended, count);
            std::abort();
        }
    }
}

}  // namespace ddp::standin_cuda
