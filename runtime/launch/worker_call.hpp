// How a worker that runs this program anew finds the call that it was started by.
// DDP_LAUNCH_CALL=<number>:<device>:<inode>:<scope><tab><location>: the call's number in its scope,
// from 1; the program's file, so that another program that inherits the variable takes no notice;
// what is counted (each launch() of the process, the run_ranks() of one test); file and line of the
// call, since a program that takes another way in a worker may count differently.
#pragma once

#include <ddp/call_site.hpp>

#include <string>

namespace ddp::launching {

inline constexpr const char* worker_call_variable = "DDP_LAUNCH_CALL";

struct CallName {
    std::string scope;
    int number;
    std::string location;
};

// The next launch() of this process.
CallName next_launch(const CallSite& where);
std::string describe_location(const CallSite& where);

enum class CallKind { start, skip, body };

struct Call {
    CallKind kind;
    std::string variable;  // for the workers of a call that is to start them
};

// To be called first by each call. Calls of other scopes than the worker's own are skipped. In a
// worker that has come to another call of its scope it does not return: it says so and exits.
Call note_call(const CallName& name);

// Whether this process is a worker that has not come to its call yet.
bool before_body();

// Whether this process is inside the body of a launch().
bool inside_body();

}  // namespace ddp::launching
