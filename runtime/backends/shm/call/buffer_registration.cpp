#include "backends/shm/call/buffer_registration.hpp"

#include "backends/shm/call/op_descriptor.hpp"

#include <span>

namespace ddp::shm {
namespace {

// Whether parts of that size are best copied by address, and all ranks of this group can do so.
bool may_access_by_address(GroupState& group, std::size_t part_bytes) {
    const Tuning& tuning = group.tuning;
    return part_bytes > 0 && part_bytes >= tuning.direct_bytes_min &&
           part_bytes <= tuning.direct_bytes_max && group.barrier.has_met() &&
           group.peers.all_reach();
}

MemoryKind register_buffer(const GroupState& group, std::span<const std::byte> buffer,
                           bool by_address, Location& location) {
    location = group.allocations.locate(buffer.data(), buffer.size());
    if (location.allocation != 0) return MemoryKind::shared;
    if (!by_address || !PeerMemory::can_be_reached(buffer)) return MemoryKind::ordinary;
    location.offset = address_of(buffer.data());
    return MemoryKind::reachable;
}

}  // namespace

Offer register_buffers(CollectiveContext& context, Role role, const BufferBytes& bytes) {
    GroupState& group = context.group;
    CallDetails& details = group.barrier.next_announcement().details;
    const std::uint64_t one_phase_bytes = group.tuning.one_phase_bytes;
    const bool by_address = may_access_by_address(group, bytes.per_peer);
    Offer offer;
    context.writes_slots = role != Role::receiver;
    if (context.writes_slots) {
        context.fits_one_phase = bytes.input <= one_phase_bytes;
        offer.input =
            context.fits_one_phase
                ? MemoryKind::ordinary
                : register_buffer(group, {context.input(), bytes.input}, by_address, details.input);
        if (offer.input == MemoryKind::ordinary) return offer;
    }
    const bool in_place = context.output() == context.input() && bytes.output == bytes.input;
    if (role == Role::both && in_place) {
        details.output = details.input;
        offer.output = offer.input;
    } else if (role != Role::sender && bytes.output > one_phase_bytes) {
        offer.output =
            register_buffer(group, {context.output(), bytes.output}, by_address, details.output);
        if (offer.output == MemoryKind::ordinary) offer.output = MemoryKind::none;
    }
    return offer;
}

DataPath path_of(const CollectiveContext& context) {
    bool direct = false, ordinary = false;
    for (std::size_t peer = 0; peer < context.group.ranks; ++peer) {
        const MemoryKind input = announced(context, peer).line.signature.offer.input;
        direct = direct || input == MemoryKind::reachable || input == MemoryKind::shared;
        ordinary = ordinary || input == MemoryKind::ordinary;
    }
    if (!direct) return DataPath::staged;
    return ordinary ? DataPath::staged_anew : DataPath::direct;
}

}  // namespace ddp::shm
