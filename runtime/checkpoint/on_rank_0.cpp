#include "checkpoint/on_rank_0.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/process/background_thread.hpp"
#include "contract/operation_recorder.hpp"
#include "process_group/group_access.hpp"
#include "tensor/device/device_api.hpp"

namespace ddp::checkpoint {

namespace {

using namespace std::chrono_literals;

constexpr auto look_interval = 50ms;  // of rank 0, for what may have ended the group

struct Report {
    bool at_work = false;  // there will be another one
    std::string error;
    Outcome outcome;
};

// Joined when it goes, whatever the reason: it uses its caller's memory.
class Worker {
public:
    explicit Worker(const Job& job)
        : task_([&job] {
              return report_of([&job] {
                  // Else what puts the thread's GPU back would make a context on the first one.
                  if (job.device.type == DeviceType::cuda) {
                      device::device_api().use(job.device.index);
                  }
                  return job.work();
              });
          }),
          report_(task_.get_future()),
          thread_(base::start_background_thread([this] { task_(); })) {}
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() {
        if (report_.valid() && !is_done_within(0ms)) {
            base::log_warn("checkpoint",
                           "this call has failed, but its work with the disk still runs and cannot "
                           "be left: waiting for it");
        }
        thread_.join();
    }

    bool is_done_within(std::chrono::milliseconds time) {
        return report_.wait_for(time) == std::future_status::ready;
    }
    Report report() { return report_.get(); }

    template <class Work>
    static Report report_of(const Work& work) {
        try {
            return {false, {}, work()};
        } catch (const std::exception& exception) {
            return {false, message_of(exception), {}};
        } catch (...) {  // the program's own, through a function of its
            return {false, "checkpoint: failed with an exception that is no std::exception", {}};
        }
    }

private:
    std::packaged_task<Report()> task_;
    std::future<Report> report_;
    std::thread thread_;
};

// Collective. Rank 0's on every rank, without the text of the error.
std::size_t send(ProcessGroup& group, Report& report) {
    std::array<std::int64_t, 6> numbers{report.at_work ? 1 : 0,
                                        static_cast<std::int64_t>(report.error.size()),
                                        report.outcome.found ? 1 : 0,
                                        report.outcome.progress.epoch,
                                        static_cast<std::int64_t>(report.outcome.progress.samples),
                                        report.outcome.progress.step};
    group.broadcast(numbers, Root{}, {}, CallSite{}).wait();
    report.at_work = numbers[0] == 1;
    report.outcome = {numbers[2] == 1,
                      {.epoch = static_cast<int>(numbers[3]),
                       .samples = static_cast<std::size_t>(numbers[4]),
                       .step = numbers[5]}};
    return static_cast<std::size_t>(numbers[1]);
}

// Collective: the last report. `on_shared` is called when the others have been sent it.
Outcome share(
    ProcessGroup& group, Report report, const std::function<void()>& on_shared = [] {}) {
    std::size_t error_bytes = send(group, report);
    while (report.at_work) error_bytes = send(group, report);
    if (error_bytes == 0) {
        on_shared();
        return report.outcome;
    }
    std::vector<std::uint8_t> text(report.error.begin(), report.error.end());
    text.resize(error_bytes);
    group.broadcast(text, Root{}, {}, CallSite{}).wait();
    on_shared();
    throw CheckpointError(std::string(text.begin(), text.end()));
}

// Waits for the work, at most for `time`. Returns earlier with what has ended the group, if
// anything: the others' ends are not seen until the next report otherwise.
std::exception_ptr wait_up_to(Worker& worker, ProcessGroup& group, std::chrono::milliseconds time) {
    const auto end = base::Deadline::after(time);
    while (!worker.is_done_within(std::min<std::chrono::milliseconds>(look_interval, end.left()))) {
        if (end.passed()) break;
        process_group::GroupAccess access(group);
        if (auto trouble = access.find_trouble("rank 0's work on a checkpoint")) return trouble;
    }
    return nullptr;
}

std::string too_long(std::chrono::milliseconds limit) {
    return "checkpoint: rank 0 is still at it after " + std::to_string(limit.count()) +
           " ms; is its disk hung? A larger CheckpointOptions::timeout waits longer";
}

}  // namespace

std::string message_of(const std::exception& exception) {
    const std::string message = exception.what();
    return message.empty() ? "checkpoint: failed without a message" : message;
}

Outcome on_rank_0(ProcessGroup& group, std::chrono::milliseconds limit, const Job& job) {
    if (group.rank() != 0) return share(group, {});
    const process_group::GroupAccess access(group);
    const contract::CheckpointScope scope(access.control_page(), access.timeline());
    if (group.size() == 1) return share(group, Worker::report_of(job.work), job.on_shared);
    std::optional<Worker> worker;
    try {
        worker.emplace(job);
    } catch (const std::exception& exception) {  // no thread: the others must not wait for it
        return share(group, {false, message_of(exception), {}});
    }
    const auto deadline = base::Deadline::after(limit);
    // Several times within the group's timeout, which counts for each report by itself.
    const auto pause = std::clamp<std::chrono::milliseconds>(group.timeout() / 8, 1ms, 5s);
    while (true) {
        const auto trouble = wait_up_to(*worker, group, std::min(pause, deadline.left()));
        if (worker->is_done_within(0ms)) return share(group, worker->report(), job.on_shared);
        if (!trouble && deadline.passed()) return share(group, {false, too_long(limit), {}});
        Report still_at_work{true, {}, {}};
        send(group, still_at_work);  // throws the group's own account of the trouble, if it knows
        if (trouble) {
            process_group::GroupAccess(group)
                .pass_on_trouble();  // this rank goes because of another
            std::rethrow_exception(trouble);
        }
    }
}

}  // namespace ddp::checkpoint
