// What a call of a group's collective does besides NCCL's work: nothing is asked of the heap, and
// no thread is made. Alone in its program, whose operator new it replaces. The stand-ins ask the
// heap themselves: the same calls of theirs, made by hand, are what it is compared with.
#include "backends/nccl/block_pool.hpp"
#include "backends/nccl/nccl_library.hpp"
#include "process_group/gpus.hpp"

#include <ddp/nccl.hpp>
#include <ddp/process_group.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <new>

namespace {

thread_local std::size_t allocations = 0;

void* allocate(std::size_t bytes) {
    ++allocations;
    return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

void* operator new(std::size_t bytes) {
    if (void* const memory = allocate(bytes)) return memory;
    throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using namespace ddp;
using namespace ddp::testing;

std::ptrdiff_t count_threads() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

constexpr std::size_t calls = 5'000;

struct Cost {
    std::size_t allocations;  // by this thread
    std::ptrdiff_t threads;
};

// Of so many calls until they return, when what is made once has been made.
template <class Call>
Cost cost_of(const Call& call) {
    std::size_t sum = 0;
    std::ptrdiff_t threads = 0;
    for (std::size_t i = 0; i < 2 * calls; ++i) {
        if (i == calls) {
            sum = 0;
            threads = count_threads();
        }
        const std::size_t before = allocations;
        auto pending = call();
        sum += allocations - before;
        while (!pending.is_completed()) {
        }
    }
    return {sum, count_threads() - threads};
}

// As a program would do it by hand: after what is on `stream`, on a stream of the communicator's.
struct ByHand {
    explicit ByHand(ProcessGroup& group) {
        with_native_handle(group, [this](ncclComm* handle) { comm = handle; });
    }
    ~ByHand() {
        gpus().synchronize(own);
        gpus().destroy_event(before);
        gpus().destroy_event(end);
        gpus().destroy_stream(own);
    }
    ByHand(const ByHand&) = delete;
    ByHand& operator=(const ByHand&) = delete;

    struct Pending {
        bool is_completed() const { return gpus().is_done(end); }
        CUevent_st* end;
    };
    Pending all_reduce(std::span<float> values, CUstream_st* stream) const {
        EXPECT_FALSE(gpus().is_captured(stream));
        gpus().record(before, stream);
        gpus().wait(own, before);
        nccl.operations.group_start();
        EXPECT_EQ(nccl.operations.all_reduce(values.data(), values.data(), values.size(), ncclFloat,
                                             ncclSum, comm, own),
                  ncclSuccess);
        nccl.operations.group_end();
        gpus().record(end, own);
        return {end};
    }

    const nccl::NcclLibrary& nccl = nccl::NcclLibrary::load();
    ncclComm_t comm = nullptr;
    CUstream_st* own = gpus().make_stream(device::Priority::high);
    CUevent_st* before = gpus().make_event();
    CUevent_st* end = gpus().make_event();
};

TEST(GpuCalls, AllocateNothingAndMakeNoThread) {
    if (!nccl::BlockPool::keeps_blocks) {
        GTEST_SKIP() << "operations are the heap's under AddressSanitizer";
    }
    gpus();
    ProcessGroup group = init_process_group({.backend = Backend::nccl});
    const GpuTensor<float> tensor(group, 256, 1.0F);
    CUstream_st* const stream = gpus().make_stream(device::Priority::normal);

    const ByHand hand(group);
    const Cost by_hand = cost_of([&] { return hand.all_reduce(tensor.values, stream); });
    // The stand-ins' queues grow now and then.
    const std::size_t most = by_hand.allocations + calls / 10;
    // An operation stays with the watchdog for some 20 ms, longer when that gets no core: until as
    // many have been at once as ever will be, there are more from time to time.
    Cost one{};
    for (int tries = 0; tries < 10 && (tries == 0 || one.allocations > most); ++tries) {
        one = cost_of([&] { return group.all_reduce(tensor.view(), ReduceOp::sum, stream); });
    }
    EXPECT_LE(one.allocations, most);
    EXPECT_EQ(one.threads, 0);
    gpus().destroy_stream(stream);
}

}  // namespace
