// How a worker that runs this program anew finds the launch() that it was started by.
// DDP_LAUNCH_CALL=<number>:<device>:<inode>:<place>: the call's number in its process, from 1; the
// program's file, so that another program that inherits the variable takes no notice; file and line
// of the call, since a program that takes another way in a worker may count differently.
#pragma once

#include <source_location>
#include <string>

namespace ddp::launching {

inline constexpr const char* worker_call_variable = "DDP_LAUNCH_CALL";

enum class CallKind { start, skip, body };

struct Call {
    CallKind kind;
    std::string variable;  // for the workers of a call that is to start them
};

// To be called first by each launch(). In a worker that has come to another call than its own it
// does not return: it says so and exits.
Call note_call(const std::source_location& where);

// Whether this process is inside the body of a launch().
bool inside_body();

}  // namespace ddp::launching
