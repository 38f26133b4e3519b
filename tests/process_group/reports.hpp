// What ranks of a test report instead of failing: the errors that they have met.
#pragma once

#include <ddp/error.hpp>
#include <ddp/testing.hpp>
#include <ddp/worker_env.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::testing {

using Join = std::function<ProcessGroup()>;

inline int own_rank() { return worker_env().rank; }

// "PeerError(1) text": what the body threw, or "nothing".
inline std::string error_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const PeerError& error) {
        return "PeerError(" + std::to_string(error.rank()) + ") " + error.what();
    } catch (const TimeoutError& error) {
        return std::string("TimeoutError ") + error.what();
    } catch (const BackendError& error) {
        return std::string("BackendError ") + error.what();
    } catch (const UsageError& error) {
        return std::string("UsageError ") + error.what();
    }
    return "nothing";
}

// What each rank reports.
inline std::vector<RankFailure> reports_with(const RunRanksOptions& options, int ranks,
                                             const std::function<std::string(const Join&)>& body) {
    const auto reporting = [&](RankReporter& reporter, const Join& join) {
        reporter.failure(body(join));
    };
    return failures_of_ranks(ranks, reporting, options);
}
// Likewise; a rank that dies is no failure.
inline std::vector<RankFailure> reports_of(int ranks,
                                           const std::function<std::string(const Join&)>& body,
                                           const InitOptions& init = {},
                                           std::vector<int> may_die = {}) {
    return reports_with({.may_die = std::move(may_die), .init = init}, ranks, body);
}

}  // namespace ddp::testing
