// The exceptions of ddp. Every failure that a program can meet is one of these; the message says
// what was tried, on what, for how long, and what to look at. Foreseen outcomes are values instead
// (std::optional from Store::try_get). All are safe to catch by `const ddp::Error&`.
#pragma once

#include <ddp/export.hpp>

#include <optional>
#include <stdexcept>
#include <string>

namespace ddp {

// The base of all the others.
class DDP_API Error : public std::runtime_error {
public:
    // Culprit: a rank of the job.
    explicit Error(const std::string& message, std::optional<int> culprit = {})
        : std::runtime_error(message), culprit_(culprit) {}
    ~Error() override;
    // The rank of the job that it is due to, where that is known; on that rank, too. A worker that
    // ends by what another rank has done leaves with exit code 82, so that the launcher blames that
    // one.
    std::optional<int> culprit() const noexcept { return culprit_; }

private:
    std::optional<int> culprit_;
};

// The caller did something that can never work: a wrong argument, a wrong environment, ranks that
// disagree. Repeating it gives the same error.
class DDP_API UsageError : public Error {
public:
    using Error::Error;
    ~UsageError() override;
};

// A call to the operating system failed. `code()` is the errno; the message ends with its text.
class DDP_API SystemError : public Error {
public:
    // The message is that, and errno's text.
    SystemError(const std::string& what_was_tried, int code);
    ~SystemError() override;
    int code() const noexcept { return code_; }  // an errno

private:
    int code_;
};

// A deadline passed. The message names the deadline and who was waited for.
class DDP_API TimeoutError : public Error {
public:
    using Error::Error;
    ~TimeoutError() override;
};

// Another rank died, left or failed while this one needed it. `rank()` is that rank.
class DDP_API PeerError : public Error {
public:
    // Because of this rank of the job.
    PeerError(int rank, const std::string& message) : Error(message, rank) {}
    ~PeerError() override;
    int rank() const noexcept { return *culprit(); }  // in the job
};

// A library underneath (NCCL, Gloo, the shared-memory backend) refused or failed.
class DDP_API BackendError : public Error {
public:
    // The message begins with the library's name.
    BackendError(std::string library, int code, const std::string& message)
        : Error(library + ": " + message), library_(std::move(library)), code_(code) {}
    ~BackendError() override;
    // Which, and its own code.
    const std::string& library() const noexcept { return library_; }
    int code() const noexcept { return code_; }

private:
    std::string library_;
    int code_;
};

// A checkpoint could not be written, read or believed. The file that was there before is intact.
class DDP_API CheckpointError : public Error {
public:
    using Error::Error;
    ~CheckpointError() override;
};

}  // namespace ddp
