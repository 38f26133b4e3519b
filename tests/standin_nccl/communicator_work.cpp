// How a communicator's operations come on a stream, and what runs there.
#include "standin_nccl/communicator.hpp"

#include <unistd.h>

#include <csignal>
#include <utility>

namespace stand_in {

std::unique_ptr<Communicator::Launch> Communicator::number(std::vector<Operation> operations,
                                                           CUstream_st* stream) {
    for (Operation& operation : operations) {
        operation.number = operations_++;
        if (!operation.is_transfer()) operation.sequence = ++collectives_;
    }
    ++launched_;
    return std::make_unique<Launch>(Launch{shared_from_this(), stream, shared_->launched++,
                                           std::move(operations), knobs().operation_delay});
}

void* Communicator::prepare(void* argument) {
    const Recorded& recorded = *static_cast<Recorded*>(argument);
    return recorded.communicator->number(recorded.operations, recorded.stream).release();
}

void Communicator::release(void* argument) {
    const std::unique_ptr<Recorded> recorded(static_cast<Recorded*>(argument));
    Communicator& self = *recorded->communicator;
    --self.recorded_;
    if (self.freed_) (void)misuse("a graph outlives the communicator whose operations it has");
}

ncclResult_t Communicator::launch(std::vector<Operation> operations, CUstream_st* stream) {
    const Knobs now = knobs();
    const auto due = std::chrono::steady_clock::now() + now.launch_delay;
    if (stream->is_captured != nullptr && stream->is_captured(stream) != 0) {
        if (!wait_until_due(due)) return ncclInternalError;
        ++recorded_;
        auto recorded =
            std::make_unique<Recorded>(Recorded{shared_from_this(), stream, std::move(operations)});
        stream->capture(stream, recorded.release(), prepare, run, release);
        return ncclSuccess;
    }
    std::optional<Fault> refusal;
    for (std::uint64_t at = operations_; at < operations_ + operations.size(); ++at) {
        const auto fault = now.fault(seat_.rank, static_cast<std::int64_t>(at));
        if (fault && fault->kind == FaultKind::fail) refusal = fault;
    }
    if (refusal) {
        operations_ += operations.size();
        set_error(refusal->result, "as the test has asked");
        return refusal->result;
    }
    auto work = number(std::move(operations), stream);
    if (blocks()) return put_when_due(std::move(work), due);
    if (now.launch_polls > 0) {
        polls_left_ = now.launch_polls;
        due_ = due;
        pending_ = std::move(work);
        return ncclInProgress;
    }
    count_call("a thread for a launch");
    in_background([this, due, launch = std::make_shared<std::unique_ptr<Launch>>(std::move(work))] {
        const ncclResult_t result = put_when_due(std::move(*launch), due);
        if (result != ncclSuccess) set_error(result, "stopped before the launch");
    });
    return ncclInProgress;
}

// False: stopped.
bool Communicator::wait_until_due(std::chrono::steady_clock::time_point due) {
    const auto is_due = [due] { return std::chrono::steady_clock::now() >= due; };
    if (is_due()) return true;
    count_call("a launch that waits");
    return Place{.stopped = &shared_->stopped}.wait_until(is_due);
}

ncclResult_t Communicator::put_when_due(std::unique_ptr<Launch> launch,
                                        std::chrono::steady_clock::time_point due) {
    if (!wait_until_due(due)) {
        ++ended_;
        return ncclInternalError;
    }
    put(std::move(launch));
    return ncclSuccess;
}

void Communicator::put(std::unique_ptr<Launch> launch) {
    CUstream_st* const stream = launch->stream;
    stream->enqueue(stream, run, launch.release());
}

void Communicator::run(void* argument) {
    const std::unique_ptr<Launch> launch(static_cast<Launch*>(argument));
    Communicator& self = *launch->communicator;
    ++self.running_;
    if (self.run_operations(*launch)) {
        self.shared_->completed = launch->turn + 1;
        ++self.completed_;
    }
    ++self.ended_;
    --self.running_;
}

// False: stopped.
bool Communicator::run_operations(const Launch& launch) {
    const Place own = place();
    const auto is_its_turn = [&] { return shared_->completed == launch.turn; };
    if (is_stopped() || !own.wait_until(is_its_turn)) return false;
    for (const Operation& operation : launch.operations) {
        if (!start(operation, launch.delay, own)) return false;
        if (!operation.is_transfer() && !run_collective(own, operation)) return false;
    }
    return run_transfers(own, launch.operations);
}

bool Communicator::start(const Operation& operation, std::chrono::microseconds delay,
                         const Place& place) {
    const auto until = std::chrono::steady_clock::now() + delay;
    const auto late = [until] { return std::chrono::steady_clock::now() >= until; };
    if (delay.count() > 0 && !place.wait_until(late)) return false;
    const auto fault = knobs().fault(seat_.rank, static_cast<std::int64_t>(operation.number));
    if (!fault) return true;
    if (fault->kind == FaultKind::die) ::kill(::getpid(), SIGKILL);
    if (fault->kind == FaultKind::error) set_error(fault->result, "as the test has asked");
    return place.hang();
}

}  // namespace stand_in
