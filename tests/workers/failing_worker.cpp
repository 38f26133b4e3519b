// A worker that fails inside run_worker: rank 1 throws, or calls abort() when told so; the others
// say that they are ready and wait.
#include <ddp/error.hpp>
#include <ddp/run_worker.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

int main(int argc, char** argv) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const std::string_view verb = argc > 1 ? argv[1] : "throw";
    return ddp::run_worker([&] {
        const char* rank = std::getenv("RANK");
        if (rank != nullptr && std::strcmp(rank, "1") == 0) {
            if (verb == "abort") std::abort();
            throw ddp::UsageError("there is no data");
        }
        std::printf("ready\n");
        std::fflush(stdout);
        for (;;) ::pause();
    });
}
