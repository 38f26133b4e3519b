// What a ProcessGroup holds. The members are destroyed in reverse order: first the queue is
// stopped, then the memory and the store go that its operations used.
#pragma once

#include "contract/control_page.hpp"
#include "process_group/operation.hpp"

#include <ddp/process_group.hpp>
#include <ddp/store.hpp>
#include <ddp/worker_env.hpp>

#include <chrono>
#include <memory>

namespace ddp {

class ProcessGroup::Impl {
public:
    Impl(WorkerEnv me_, std::shared_ptr<Store> store_, contract::ControlRegion control_,
         std::chrono::milliseconds timeout_)
        : me(std::move(me_)),
          store(std::move(store_)),
          control(std::move(control_)),
          timeout(timeout_) {}
    ~Impl() {
        if (queue) queue->stop();
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    Work start(const backends::Call& call) { return Work(queue->start(call, timeout)); }

    WorkerEnv me;
    std::shared_ptr<Store> store;
    contract::ControlRegion control;
    std::chrono::milliseconds timeout;
    std::shared_ptr<process_group::OperationQueue> queue;
};

}  // namespace ddp
