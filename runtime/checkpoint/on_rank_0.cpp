#include "checkpoint/on_rank_0.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/background_thread.hpp"
#include "base/deadline.hpp"
#include "tensor/device_api.hpp"

namespace ddp::checkpoint {

namespace {

using namespace std::chrono_literals;

struct Report {
    bool at_work = false;  // there will be another one
    std::string error;
    Outcome outcome;
};

// Joined when it goes, whatever the reason: it uses its caller's memory.
class Worker {
public:
    // On the rank's own GPU: another one would get a context.
    Worker(const std::function<Outcome()>& work, const Device& device)
        : task_([&work, device] {
              if (device.type == DeviceType::cuda) device::device_api().use(device.index);
              return report_of(work);
          }),
          report_(task_.get_future()),
          thread_(base::start_background_thread([this] { task_(); })) {}
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() { thread_.join(); }

    bool is_done_within(std::chrono::milliseconds time) {
        return report_.wait_for(time) == std::future_status::ready;
    }
    Report report() { return report_.get(); }

    static Report report_of(const std::function<Outcome()>& work) {
        try {
            return {false, {}, work()};
        } catch (const std::exception& exception) {
            return {false, message_of(exception), {}};
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
    group.broadcast(numbers).wait();
    report.at_work = numbers[0] == 1;
    report.outcome = {numbers[2] == 1,
                      {.epoch = static_cast<int>(numbers[3]),
                       .samples = static_cast<std::size_t>(numbers[4]),
                       .step = numbers[5]}};
    return static_cast<std::size_t>(numbers[1]);
}

// Collective: the last report.
Outcome share(ProcessGroup& group, Report report) {
    std::size_t error_bytes = send(group, report);
    while (report.at_work) error_bytes = send(group, report);
    if (error_bytes == 0) return report.outcome;
    std::vector<std::uint8_t> text(report.error.begin(), report.error.end());
    text.resize(error_bytes);
    group.broadcast(text).wait();
    throw CheckpointError(std::string(text.begin(), text.end()));
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

Outcome on_rank_0(ProcessGroup& group, std::chrono::milliseconds limit,
                  const std::function<Outcome()>& work) {
    if (group.rank() != 0) return share(group, {});
    if (group.size() == 1) return share(group, Worker::report_of(work));
    std::optional<Worker> worker;
    try {
        worker.emplace(work, group.device());
    } catch (const SystemError& error) {  // no thread: the others must not wait for it
        return share(group, {false, error.what(), {}});
    }
    const auto deadline = base::Deadline::after(limit);
    // Several times within the group's timeout, which counts for each report by itself.
    const auto pause = std::clamp<std::chrono::milliseconds>(group.timeout() / 8, 1ms, 5s);
    while (!worker->is_done_within(std::min(pause, deadline.left()))) {
        if (deadline.passed()) return share(group, {false, too_long(limit), {}});
        Report still_at_work{true, {}, {}};
        send(group, still_at_work);
    }
    return share(group, worker->report());
}

}  // namespace ddp::checkpoint
