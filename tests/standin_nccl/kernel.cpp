#include "standin_nccl/kernel.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

namespace stand_in {

namespace {
constexpr std::size_t collectives = 0;  // the first index of Region::mail
constexpr std::size_t transfers = 1;

Mailbox& mailbox(const Place& place, std::size_t kind, int from, int to) {
    return place.region->mail[kind][static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

bool is_free(const Mailbox& mail) { return mail.taken.load() == mail.written.load(); }
bool is_full(const Mailbox& mail) { return !is_free(mail); }

void write(Mailbox& mail, const Header& header, const std::byte* bytes, std::size_t size) {
    mail.header = header;
    std::memcpy(mail.bytes.data(), bytes, size);
    ++mail.written;
}

Header header_of(const Operation& operation) {
    const bool transfer = operation.is_transfer();
    return {transfer ? 0 : operation.sequence,
            operation.count,
            static_cast<std::uint32_t>(transfer ? Kind::send : operation.kind),
            static_cast<std::uint32_t>(operation.dtype),
            static_cast<std::uint32_t>(operation.reduction.op),
            static_cast<std::uint32_t>(transfer ? 0 : operation.root)};
}

// Who gives what to whom in a collective.
class Plan {
public:
    Plan(const Place& place, const Operation& operation)
        : operation_(operation),
          part_bytes_(operation.count * size_of(operation.dtype)),
          is_root_(operation.root == place.rank) {}

    bool reduces() const {
        return operation_.kind == Kind::all_reduce || operation_.kind == Kind::reduce ||
               operation_.kind == Kind::reduce_scatter;
    }
    // What this rank gives to a peer; null: nothing.
    const std::byte* given_to(int peer) const {
        switch (operation_.kind) {
            case Kind::all_reduce:
            case Kind::all_gather:
                return operation_.from;
            case Kind::reduce:
            case Kind::gather:
                return peer == operation_.root ? operation_.from : nullptr;
            case Kind::broadcast:
                return is_root_ ? operation_.from : nullptr;
            case Kind::reduce_scatter:
            case Kind::all_to_all:
                return part(operation_.from, peer);
            case Kind::scatter:
                return is_root_ ? part(operation_.from, peer) : nullptr;
            case Kind::send:
            case Kind::receive:
                break;
        }
        return nullptr;
    }
    // Where this rank puts what a peer gives to it; null: nothing comes.
    std::byte* place_of(int peer) const {
        switch (operation_.kind) {
            case Kind::all_reduce:
            case Kind::reduce_scatter:
                return operation_.to;
            case Kind::reduce:
                return is_root_ ? operation_.to : nullptr;
            case Kind::broadcast:
            case Kind::scatter:
                return peer == operation_.root ? operation_.to : nullptr;
            case Kind::all_gather:
            case Kind::all_to_all:
                return part(operation_.to, peer);
            case Kind::gather:
                return is_root_ ? part(operation_.to, peer) : nullptr;
            case Kind::send:
            case Kind::receive:
                break;
        }
        return nullptr;
    }

private:
    template <class Byte>
    Byte* part(Byte* all, int peer) const {
        return all + static_cast<std::size_t>(peer) * part_bytes_;
    }

    const Operation& operation_;
    std::size_t part_bytes_;
    bool is_root_;
};

// The same piece of each part.
struct Piece {
    std::size_t offset;  // in bytes
    std::size_t elements;
    std::size_t bytes;
};

bool give(const Place& place, const Plan& plan, const Header& header, const Piece& piece) {
    for (int step = 1; step < place.ranks; ++step) {
        const int peer = (place.rank + step) % place.ranks;
        const std::byte* const given = plan.given_to(peer);
        if (given == nullptr) continue;
        Mailbox& mail = mailbox(place, collectives, place.rank, peer);
        if (!place.wait_until([&] { return is_free(mail); })) return false;
        write(mail, header, given + piece.offset, piece.bytes);
    }
    return true;
}

// The peer's message for this piece. Null: stopped before it came, or it belongs to another
// operation, which on a GPU would hang and does so here.
const std::byte* message(const Place& place, const Header& header, const Mailbox& mail) {
    if (!place.wait_until([&] { return is_full(mail); })) return nullptr;
    if (mail.header == header) return mail.bytes.data();
    place.hang();
    return nullptr;
}

bool take(const Place& place, const Plan& plan, const Operation& operation, const Header& header,
          const Piece& piece) {
    std::vector<const std::byte*> inputs(static_cast<std::size_t>(place.ranks));
    for (int peer = 0; peer < place.ranks; ++peer) {
        std::byte* const target = plan.place_of(peer);
        if (target == nullptr) continue;
        const std::byte* source = nullptr;
        Mailbox& mail = mailbox(place, collectives, peer, place.rank);
        if (peer == place.rank) {
            source = plan.given_to(peer) + piece.offset;
        } else {
            source = message(place, header, mail);
        }
        if (source == nullptr) return false;
        inputs[static_cast<std::size_t>(peer)] = source;
        if (plan.reduces()) continue;
        std::memmove(target + piece.offset, source, piece.bytes);
        if (peer != place.rank) ++mail.taken;
    }
    if (!plan.reduces() || plan.place_of(place.rank) == nullptr) return true;
    reduce(inputs, plan.place_of(place.rank) + piece.offset, piece.elements, operation.dtype,
           operation.reduction);
    for (int peer = 0; peer < place.ranks; ++peer) {
        if (peer != place.rank) ++mailbox(place, collectives, peer, place.rank).taken;
    }
    return true;
}

// One send or receive under way.
struct Transfer {
    const Operation* operation;
    std::size_t done = 0;  // bytes
    std::size_t bytes() const { return operation->count * size_of(operation->dtype); }
    std::size_t piece() const { return std::min(message_bytes, bytes() - done); }
};

// A step of the first transfer of a queue, if it can be made. False: nothing was done.
bool advance(const Place& place, std::deque<Transfer>& queue) {
    Transfer& first = queue.front();
    const Operation& operation = *first.operation;
    const std::size_t piece = first.piece();
    const bool sends = operation.kind == Kind::send;
    Mailbox& mail = sends ? mailbox(place, transfers, place.rank, operation.root)
                          : mailbox(place, transfers, operation.root, place.rank);
    if (piece > 0) {
        if (sends ? is_full(mail) : is_free(mail)) return false;
        if (sends) {
            write(mail, header_of(operation), operation.from + first.done, piece);
        } else {
            if (mail.header != header_of(operation)) return false;  // for ever: see message()
            std::memcpy(operation.to + first.done, mail.bytes.data(), piece);
            ++mail.taken;
        }
        first.done += piece;
    }
    if (first.done == first.bytes()) queue.pop_front();
    return true;
}
}  // namespace

bool run_collective(const Place& place, const Operation& operation) {
    const Plan plan(place, operation);
    const Header header = header_of(operation);
    const std::size_t size = size_of(operation.dtype);
    for (std::size_t done = 0; done < operation.count;) {
        const std::size_t elements = std::min(message_bytes / size, operation.count - done);
        const Piece piece{done * size, elements, elements * size};
        if (!give(place, plan, header, piece)) return false;
        if (!take(place, plan, operation, header, piece)) return false;
        done += elements;
    }
    return true;
}

bool run_transfers(const Place& place, std::span<const Operation> operations) {
    const auto ranks = static_cast<std::size_t>(place.ranks);
    std::vector<std::deque<Transfer>> queues(2 * ranks);  // to each peer, then from each
    for (const Operation& operation : operations) {
        if (!operation.is_transfer()) continue;
        const std::size_t peer = static_cast<std::size_t>(operation.root);
        queues[operation.kind == Kind::send ? peer : ranks + peer].push_back({&operation});
    }
    for (Backoff backoff;;) {
        bool advanced = false;
        bool waits = false;
        for (std::deque<Transfer>& queue : queues) {
            while (!queue.empty() && advance(place, queue)) advanced = true;
            waits |= !queue.empty();
        }
        if (!waits) return true;
        if (place.stopped->load()) return false;
        if (advanced) backoff.reset();
        backoff.pause();
    }
}

}  // namespace stand_in
