#include "backends/shm/call/collective_context.hpp"

#include "backends/call_header.hpp"

namespace ddp::shm {

std::string CollectiveContext::operator()() const {
    return backends::describe(call) + backends::describe_source(call.source) + ", operation " +
           std::to_string(sequence);
}

}  // namespace ddp::shm
