// A worker that sleeps until it is told to end.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/verdict/process_state.hpp"
#include "launcher/worker/worker.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

namespace ddp::launcher::testing {

// Whether its process has gone to sleep: one that has just been started still loads its program.
inline bool sleeps(const Worker& worker) {
    const pid_t pid = worker.process.pid();
    const auto runs = runs_of(pid, pid);
    return look_at_process(pid).state == 'S' && runs && runs->switches > 0;
}

// Returns when it sleeps.
inline Worker start_sleeping_worker(int local_rank) {
    const base::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    WorkerStart start;
    start.path = "/bin/sleep";
    start.arguments = {"sleep", "600"};
    start.descriptors = {null.get(), null.get(), null.get(), null.get()};
    ::getrlimit(RLIMIT_NOFILE, &start.descriptor_limit);
    Worker worker = start_worker(std::move(start), local_rank);
    while (!sleeps(worker)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return worker;
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
