// --break-on-failure, the worker's side: with DDP_BREAK_ON_FAILURE=1 in its environment a process
// that fails stops itself (SIGSTOP), its stack as it was, so that a debugger can be attached. Its
// error file is there by then; the launcher, which sees the stop, says how to go on. After SIGCONT
// it dies as it would have.
#pragma once

namespace ddp::contract {

// Whether the environment asks for it.
bool breaks_on_failure() noexcept;

// Stops this process, once; returns when it was continued. Does nothing when not asked for.
void stop_for_debugger() noexcept;

// From now on nothing stops this process for a debugger: another rank's failure ends it.
void do_not_stop_for_debugger() noexcept;

// Handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, where the program has none of its own:
// they write the error file, stop this process, and end it with the same signal after SIGCONT.
// Does nothing when not asked for.
void stop_on_fatal_signals();

}  // namespace ddp::contract
