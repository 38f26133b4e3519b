// Ranks of the NCCL backend as threads of the test, over the stand-ins for NCCL and the CUDA runtime:
// the form in which ThreadSanitizer sees all of it. No CPU half: there is no process to lose.
#pragma once

#include "backends/nccl/nccl_backend.hpp"
#include "standin_cuda/cards.hpp"
#include "support/stand_in_library.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ddp::testing {

// Of NCCL: the first whose communicators block here, and one whose do not.
inline constexpr const char* oldest_that_blocks = "22203";
inline constexpr const char* older_version = "21805";

// What a thread has to itself: a backend, a stream, memory.
class NcclThread {
public:
    NcclThread(standin_cuda::Cards& api_, const nccl::NcclLibrary& library, const ncclUniqueId& id,
               nccl::Communicator::GroupRank own_, std::chrono::milliseconds limit)
        : api(api_), own(own_) {
        api.use(own.rank);
        auto communicator = std::make_shared<nccl::Communicator>(library, api, own.rank);
        communicator->start_init(id, own);
        if (!communicator->wait_ready(std::chrono::seconds{20})) {
            throw std::runtime_error("the communicator does not become ready");
        }
        const std::string name = "rank " + std::to_string(own.rank);
        backend = std::make_unique<nccl::NcclBackend>(
            nccl::NcclBackend::Setup{
                .library = library,
                .api = api,
                .device = own.rank,
                .own = own,
                .name = name,
                .cpu = nullptr,
                .averaging = nccl::choose_averaging(
                    {own.ranks, api.architecture(own.rank), nullptr, library.version})},
            communicator, std::make_shared<nccl::GroupFamily>(name, limit, communicator));
        stream = api.make_stream(device::Priority::normal);
    }
    ~NcclThread() {
        backend.reset();
        api.destroy_stream(stream);
        for (void* const one : memory_) api.free(one);
    }
    NcclThread(const NcclThread&) = delete;
    NcclThread& operator=(const NcclThread&) = delete;

    template <class T>
    std::span<T> make(std::size_t count, T value) {
        memory_.push_back(api.allocate(std::max(count * sizeof(T), std::size_t{1})));
        const std::span<T> values(static_cast<T*>(memory_.back()), count);
        std::fill(values.begin(), values.end(), value);
        return values;
    }
    template <class T>
    std::shared_ptr<backends::DeviceOperation> all_reduce(
        std::span<T> values, ReduceOp op = ReduceOp::sum,
        std::chrono::milliseconds timeout = std::chrono::seconds{20}) {
        const backends::Call call{.kind = backends::Collective::all_reduce,
                                  .dtype = dtype_of<T>(),
                                  .op = op,
                                  .elements = values.size(),
                                  .input = values.data(),
                                  .output = values.data()};
        return backend->launch({&call, 1}, stream, timeout);
    }

    standin_cuda::Cards& api;
    nccl::Communicator::GroupRank own;
    std::unique_ptr<nccl::NcclBackend> backend;
    CUstream_st* stream = nullptr;

private:
    std::vector<void*> memory_;
};

struct ThreadsSetup {
    std::string library = stand_in_path();
    std::chrono::milliseconds limit = std::chrono::seconds{10};
};

inline void on_nccl_threads(int ranks, const std::function<void(NcclThread&)>& body,
                            const ThreadsSetup& setup = {}) {
    const nccl::NcclLibrary library = nccl::NcclLibrary::load(setup.library);
    standin_cuda::Cards& api = standin_cuda::lasting_cards(ranks);
    ncclUniqueId id{};
    ASSERT_EQ(library.communicator.get_unique_id(&id), ncclSuccess);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                NcclThread own(api, library, id, {rank, ranks}, setup.limit);
                body(own);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
    threads.clear();
}

}  // namespace ddp::testing
