// The threads of a block as fibres of one thread of the host: each runs until it calls
// synchronise(), then the next. Sanitizers are told of each switch.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace ddp::standin_cuda {

class Fibres {
public:
    Fibres();
    ~Fibres();
    Fibres(const Fibres&) = delete;
    Fibres& operator=(const Fibres&) = delete;

    // Calls body(0) to body(count - 1), each in a fibre of its own. Phases (what lies between two
    // calls of synchronise) run forwards and backwards in turn: who reads what another writes in
    // the same phase, sees it once early and once late. Aborts the process when some fibres end
    // while others wait: CUDA leaves that undefined.
    void run(unsigned count, const std::function<void(unsigned)>& body);
    // From within body alone.
    void synchronise();

private:
    struct Fibre;
    static void enter(unsigned high, unsigned low);
    Fibre& fibre(unsigned index);
    void resume(Fibre& fibre);
    void leave(Fibre& fibre, bool for_good);

    std::vector<std::unique_ptr<Fibre>> fibres_;
    const std::function<void(unsigned)>* body_ = nullptr;
    Fibre* running_ = nullptr;
    ucontext_t caller_{};
    // Of sanitizers.
    [[maybe_unused]] void* caller_fake_stack_ = nullptr;
    [[maybe_unused]] const void* caller_stack_ = nullptr;
    [[maybe_unused]] std::size_t caller_stack_bytes_ = 0;
    [[maybe_unused]] void* caller_tsan_ = nullptr;
};

}  // namespace ddp::standin_cuda
