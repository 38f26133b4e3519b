#include <ddp/run_worker.hpp>

#include "contract/break_on_failure.hpp"
#include "contract/error_file.hpp"
#include "contract/exit_code.hpp"

#include <ddp/error.hpp>

namespace ddp {
namespace {

// For the exception that is being handled.
int report_failure() {
    const contract::ErrorReport report = contract::describe(std::current_exception());
    contract::write_error_file(report);
    return contract::report_and_choose_exit_code(report);
}

// An exception that nobody catches leaves the stack as it was where it was thrown: the terminate
// handler holds the process there, or ends it when another rank is to blame.
int run_and_break(const std::function<void()>& body) {
    contract::install_terminate_handler();
    contract::leave_because_of_peer();
    try {
        body();
        return contract::exit_ok;
    } catch (const PeerError&) {
        return report_failure();
    }
}

}  // namespace

int run_worker(const std::function<void()>& body) {
    if (contract::breaks_on_failure()) return run_and_break(body);
    try {
        body();
        return contract::exit_ok;
    } catch (...) {
        return report_failure();
    }
}

}  // namespace ddp
