// A program, or a function of the test, in other namespaces than the test's: its three streams are
// pipes of the test. Between both stands a process that enters the namespaces, waits for the
// program and tells its end, so that the death of a whole PID namespace waits for no test.
// Invariant: when the object goes, or the test is killed, the program has gone or will at once.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace ddp::testing {

struct HostProgramResult {
    int exit_code = -1;  // 128 + signal when a signal ended it; -1: it did not end
    std::string out;
    std::string err;
};

class HostProgram {
public:
    using Words = std::vector<std::string>;
    using Milliseconds = std::chrono::milliseconds;
    // Long enough for a busy machine; a test that meets it has failed.
    static constexpr std::chrono::seconds patience{60};

    // `enter` runs in the process between and returns false, with errno, where it cannot; `body` in
    // a child of that, with the three streams and no other descriptor; its value is the exit code.
    // Throws when `enter` has failed. The thread that makes the object must not end before it.
    HostProgram(const std::function<bool()>& enter, const std::function<int()>& body);
    HostProgram(HostProgram&&) noexcept;
    HostProgram& operator=(HostProgram&&) noexcept = delete;
    ~HostProgram();  // SIGKILL if it is still there; returns when it has ended

    // A body that executes a program found in PATH or in an sbin; 127 when there is none.
    // `environment` holds "NAME=value", beside what the test has.
    static std::function<int()> execute(Words words, Words environment = {});

    pid_t pid() const { return pid_; }  // as the test's PID namespace sees it
    void signal(int signal) const;      // nothing once its end was seen

    void write(const std::string& text);  // to its stdin; waits while the pipe is full
    void close_input();                   // its stdin ends

    // Until stdout, or stderr, holds `text` so many times. False: it never came.
    bool wait_for_output(const std::string& text, int times = 1);
    bool wait_for_error(const std::string& text, int times = 1);
    const std::string& out() const { return result_.out; }  // what was read by now
    const std::string& err() const { return result_.err; }
    // Its end, or how far it has come by then. Does not wait for those that hold its pipes.
    HostProgramResult wait(Milliseconds at_most = patience);
    bool ended() const { return between_ < 0; }  // as far as was waited for

private:
    struct Stream {
        base::UniqueFd read_end;
        base::UniqueFd write_end;
    };
    static Stream make_stream();

    [[noreturn]] void stand_between(const std::function<bool()>& enter,
                                    const std::function<int()>& body, int report);
    [[noreturn]] void become(const std::function<int()>& body, pid_t parent);
    bool wait_for(const std::string& text, int times, const base::UniqueFd& fd,
                  const std::string& held);
    void collect(Milliseconds at_most);
    void take_end();

    pid_t between_ = -1;  // our child; -1: it has been waited for
    pid_t pid_ = -1;
    Stream in_ = make_stream();  // with the read end: a write to one that has ended is no SIGPIPE
    Stream out_ = make_stream();
    Stream err_ = make_stream();
    Stream report_ = make_stream();  // the pid, and later the status of wait()
    HostProgramResult result_;
};

}  // namespace ddp::testing
