// The destructors are here so that each exception's type information has one home, and a program
// that links the shared library catches what the library threw.
#include <ddp/error.hpp>

#include <cstring>

namespace ddp {

Error::~Error() = default;
UsageError::~UsageError() = default;
SystemError::~SystemError() = default;
TimeoutError::~TimeoutError() = default;
PeerError::~PeerError() = default;
BackendError::~BackendError() = default;
CheckpointError::~CheckpointError() = default;

SystemError::SystemError(const std::string& what_was_tried, int code)
    : Error(what_was_tried + ": " + ::strerror(code)), code_(code) {}

}  // namespace ddp
