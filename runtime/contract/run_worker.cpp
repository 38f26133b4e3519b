#include <ddp/run_worker.hpp>

#include "contract/error_file.hpp"
#include "contract/exit_code.hpp"

#include <ddp/error.hpp>

#include <cstdio>

namespace ddp {

int run_worker(const std::function<void()>& body) {
    try {
        body();
        return contract::exit_ok;
    } catch (...) {
        const contract::ErrorReport report = contract::describe(std::current_exception());
        contract::write_error_file(report);
        std::fflush(stdout);
        std::fprintf(stderr, "%s\n", report.message.c_str());
        return report.peer ? contract::exit_because_of_peer : contract::exit_error;
    }
}

}  // namespace ddp
