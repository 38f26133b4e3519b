// Ends of workers, made up for the tests of the whose-fault rule and of the reports.
#pragma once

#include "launcher/report/failure.hpp"

#include <csignal>

namespace ddp::launcher::testing {

inline WorkerEnd ended(int rank, ExitStatus status) {
    WorkerEnd end;
    end.rank = rank;
    end.local_rank = rank;
    end.pid = 100 + rank;
    end.status = status;
    return end;
}
inline WorkerEnd exited(int rank, int code) { return ended(rank, {.code = code}); }
inline WorkerEnd killed(int rank, int signal) { return ended(rank, {.signal = signal}); }
inline WorkerEnd because_of(int rank, int peer) {
    WorkerEnd end = exited(rank, 82);
    end.error = contract::ErrorReport{"PeerError: gone", peer};
    return end;
}
inline WorkerEnd aborted_because_of(int rank, int peer) {
    WorkerEnd end = killed(rank, SIGABRT);
    end.error = contract::ErrorReport{"PeerError: gone", peer};
    return end;
}
inline WorkerEnd stopped(WorkerEnd end, int signal) {
    end.stopped_with = signal;
    end.stop_took = std::chrono::milliseconds{240};
    return end;
}

}  // namespace ddp::launcher::testing
