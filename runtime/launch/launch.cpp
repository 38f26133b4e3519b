// The two forms of launch().
#include <ddp/launch.hpp>

#include "launch/launch_job.hpp"

#include <ddp/error.hpp>

namespace ddp {

LaunchResult launch(const LaunchOptions& options, const std::vector<std::string>& command,
                    const CallSite& where) {
    if (command.empty() || command.front().empty()) throw UsageError("launch: no command");
    launching::check(options);
    const auto call = launching::note_call(launching::next_launch(where));
    if (call.kind != launching::CallKind::start) return {};
    return launching::run_command(options, command).job;
}

LaunchResult launch(const LaunchOptions& options, const std::function<void()>& body,
                    const CallSite& where) {
    if (!body) throw UsageError("launch: no function");
    launching::check(options);
    const auto result =
        launching::run_body(options, {.name = launching::next_launch(where), .body = body});
    return result ? result->job : LaunchResult{};
}

}  // namespace ddp
