#include "backends/gloo/transport/gloo_transport.hpp"

#include <gloo/common/error.h>

#include <utility>

namespace ddp::gloo {
namespace {

// Gloo cannot bear that the buffer of an open operation goes: stop first.
class GlooOperation : public Operation {
public:
    GlooOperation(const Message& message, Buffer memory)
        : Operation(message.peer), direction(message.direction), buffer(std::move(memory)) {}

    Direction direction;
    Buffer buffer;
};

}  // namespace

GlooTransport::GlooTransport(const Group& group, const std::string& address,
                             const base::Deadline& deadline, std::function<bool()> has_trouble)
    : pairs_(group.rank, group.ranks, address) {
    const PipeSignalBlock no_signal;
    pairs_.connect(*group.store, deadline);
    health_.emplace(pairs_);
    watchdog_.emplace(std::move(has_trouble));
}

void GlooTransport::start(std::span<const Message> messages, Progress, Operations& started) {
    const PipeSignalBlock no_signal;
    for_each_in_order(messages, [&](const Message& message) {
        auto operation =
            std::make_unique<GlooOperation>(message, pairs_.buffer(message.data, message.bytes));
        ::gloo::transport::UnboundBuffer& buffer = *operation->buffer;
        started.push_back(std::move(operation));
        try {
            if (message.direction == Direction::send) {
                buffer.send(message.peer, message.slot);
            } else {
                buffer.recv(message.peer, message.slot);
            }
        } catch (const ::gloo::Exception& error) {
            throw TransportError(message.peer, error.what());
        }
    });
}

std::optional<int> GlooTransport::wait(const Operations& operations,
                                       const base::Deadline* deadline) {
    const PipeSignalBlock no_signal;
    for (const auto& one : operations) {
        const auto& operation = static_cast<const GlooOperation&>(*one);
        try {
            if (!watchdog_->wait(*operation.buffer, operation.direction, deadline)) {
                return operation.peer();
            }
        } catch (const ::gloo::Exception& error) {
            throw TransportError(operation.peer(), error.what());
        }
    }
    return std::nullopt;
}

}  // namespace ddp::gloo
