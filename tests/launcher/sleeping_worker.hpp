// A worker that sleeps until it is told to end.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/worker/worker.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

namespace ddp::launcher::testing {

inline Worker start_sleeping_worker(int local_rank) {
    const base::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    WorkerStart start;
    start.path = "/bin/sleep";
    start.arguments = {"sleep", "600"};
    start.descriptors = {null.get(), null.get(), null.get(), null.get()};
    ::getrlimit(RLIMIT_NOFILE, &start.descriptor_limit);
    return start_worker(std::move(start), local_rank);
}

inline void end_worker(Worker& worker) {
    worker.process.signal(SIGKILL);
    while (!worker.ended) {
        worker.ended = worker.process.reap();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    worker.ended_at = Worker::Clock::now();
}

}  // namespace ddp::launcher::testing
