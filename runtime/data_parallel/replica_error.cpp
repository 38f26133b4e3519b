#include "data_parallel/replica_error.hpp"

#include <ddp/error.hpp>

#include <cstring>
#include <stdexcept>
#include <string>

namespace ddp::data_parallel {

namespace {

// Those whose constructors take more than a text and add to it.
void throw_if_it_has_more(const std::exception& error, const std::string& where) {
    std::string text = error.what();
    if (const auto* system = dynamic_cast<const SystemError*>(&error)) {
        const std::string end = std::string(": ") + ::strerror(system->code());
        if (text.ends_with(end)) text.resize(text.size() - end.size());
        std::throw_with_nested(SystemError(where + text, system->code()));
    }
    if (const auto* backend = dynamic_cast<const BackendError*>(&error)) {
        const std::string begin = backend->library() + ": ";
        if (text.starts_with(begin)) text.erase(0, begin.size());
        std::throw_with_nested(BackendError(backend->library(), backend->code(), where + text));
    }
    if (const auto* peer = dynamic_cast<const PeerError*>(&error)) {
        std::throw_with_nested(PeerError(peer->rank(), where + text));
    }
}

template <class Class>
void throw_if_it_is(const std::exception& error, const std::string& where) {
    if (dynamic_cast<const Class*>(&error) != nullptr) {
        std::throw_with_nested(Class(where + error.what()));
    }
}

// The first class that fits is thrown: derived classes before their bases.
template <class... Classes>
void throw_as_one_of(const std::exception& error, const std::string& where) {
    (throw_if_it_is<Classes>(error, where), ...);
}

}  // namespace

void rethrow_of_replica(const std::exception_ptr& error, std::size_t replica,
                        const Device& device) {
    const std::string where =
        "replica " + std::to_string(replica) + " on " + to_string(device) + ": ";
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& caught) {
        throw_if_it_has_more(caught, where);
        throw_as_one_of<UsageError, TimeoutError, CheckpointError, Error, std::invalid_argument,
                        std::domain_error, std::length_error, std::out_of_range, std::logic_error,
                        std::range_error, std::overflow_error, std::underflow_error,
                        std::runtime_error>(caught, where);
        std::throw_with_nested(Error(where + caught.what()));
    } catch (...) {
        std::throw_with_nested(Error(where + "an exception that is no std::exception"));
    }
}

}  // namespace ddp::data_parallel
