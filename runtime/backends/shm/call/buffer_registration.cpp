#include "backends/shm/call/buffer_registration.hpp"

#include "backends/shm/call/op_descriptor.hpp"

#include <span>

namespace ddp::shm {
namespace {

// Whether parts of that size are best copied by address, and all ranks of this group can do so.
bool may_access_by_address(GroupState& group, std::size_t part_bytes) {
    const Tuning& tuning = group.tuning;
    return part_bytes > 0 && part_bytes >= tuning.direct.min_bytes &&
           part_bytes <= tuning.direct.max_bytes && group.barrier.has_completed_phase() &&
           group.peers.all_can_access_peers();
}

// `place`: where it is, if peers have it mapped.
BufferAccess register_buffer(const GroupState& group, std::span<const std::byte> buffer,
                             bool by_address, BufferLocation& location,
                             SharedAllocations::Place& place) {
    place = group.allocations.locate(buffer.data(), buffer.size());
    location = place.location;
    if (location.allocation != 0) {
        if (place.adopted != nullptr) place.adopted->show_ends(buffer);
        return BufferAccess::mapped;
    }
    if (!by_address || !PeerMemory::is_accessible(buffer)) return BufferAccess::staged;
    location.offset = address_of(buffer.data());
    return BufferAccess::by_address;
}

}  // namespace

BufferRegistration register_buffers(CollectiveContext& context, Role role,
                                    const BufferBytes& bytes) {
    GroupState& group = context.group;
    OpDetails& details = group.barrier.next_descriptor().details;
    const std::uint64_t one_phase_bytes = group.tuning.staged.one_phase_bytes;
    const bool by_address = may_access_by_address(group, bytes.per_peer);
    const bool in_place = context.output() == context.input() && bytes.output == bytes.input;
    BufferRegistration buffers;
    SharedAllocations::Place place;
    context.writes_slots = role != Role::receiver;
    if (context.writes_slots) {
        context.fits_one_phase = bytes.input <= one_phase_bytes;
        buffers.input = context.fits_one_phase
                            ? BufferAccess::staged
                            : register_buffer(group, {context.input(), bytes.input}, by_address,
                                              details.input, place);
        if (buffers.input == BufferAccess::staged) return buffers;
        if (place.adopted != nullptr) {
            const bool same = context.output() == context.input();
            context.input_data = place.data;
            // A sender with one buffer for both has nothing to copy from one to the other.
            if (role == Role::sender && same) context.output_data = place.data;
        }
    }
    if (role == Role::both && in_place) {
        details.output = details.input;
        buffers.output = buffers.input;
        if (place.adopted != nullptr) context.use_adopted_output(place, bytes.output);
    } else if (role != Role::sender && bytes.output > one_phase_bytes) {
        buffers.output = register_buffer(group, {context.output(), bytes.output}, by_address,
                                         details.output, place);
        if (buffers.output == BufferAccess::staged) buffers.output = BufferAccess::none;
        if (place.adopted != nullptr) context.use_adopted_output(place, bytes.output);
    }
    return buffers;
}

DataPath path_of(const CollectiveContext& context) {
    bool direct = false, staged = false;
    for (std::size_t peer = 0; peer < context.group.ranks; ++peer) {
        const BufferAccess input = descriptor_of(context, peer).line.signature.buffers.input;
        direct = direct || input == BufferAccess::by_address || input == BufferAccess::mapped;
        staged = staged || input == BufferAccess::staged;
    }
    if (!direct) return DataPath::staged;
    return staged ? DataPath::staged_anew : DataPath::direct;
}

}  // namespace ddp::shm
