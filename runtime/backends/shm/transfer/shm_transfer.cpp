#include "backends/shm/transfer/shm_transfer.hpp"

#include "backends/reduction/reduce.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstring>

namespace ddp::shm {

using backends::Direction;
using backends::Transfer;

namespace {

constexpr std::uint64_t by_address = std::uint64_t{1} << 63;  // in Channel::message

// What is read at a time, so that other transfers get their turn.
constexpr std::size_t read_at_once = std::size_t{1} << 20;

// What a channel holds stays in the caches however long the message is.
Tuning for_channels(Tuning tuning) {
    tuning.streaming_bytes = UINT64_MAX;
    return tuning;
}

}  // namespace

class ShmTransfer : public backends::PendingTransfer {
public:
    ShmTransfer(TransferState& state, const Transfer& transfer, TransferState::End& end)
        : state_(state), transfer_(transfer), end_(end), ticket_(end.started++) {}

    // A few chunks at a time, so that the others get their turn.
    bool advance() override {
        bool moved = false;
        for (std::size_t i = 0; i < channel_slots && !done_ && ready(); ++i) {
            move_chunk();
            moved = true;
        }
        return moved;
    }
    bool is_done() const override { return done_; }

    void rest(std::uint64_t round) override { state_.waiter_.rest(round); }

    void wait_a_little(const base::Deadline&) override {
        // Ranks that have nothing to do with it may have done their part and left.
        const auto awake = [this] {
            return done_ || ready() || (!state_.waiter_.is_aborted() && state_.any_ready());
        };
        const auto inbox = [this]() -> Bell& { return state_.region_.block(state_.rank_).inbox; };
        // One thread sleeps for all transfers: it looks after the peers of all.
        state_.waiter_.nap(inbox, awake,
                           {[this] { return describe(); }, [this] { return state_.open_peers(); }});
    }

    void give_up(const base::Deadline& deadline) override {
        state_.waiter_.give_up(deadline, {[this] { return describe(); },
                                          [this] { return std::vector<int>{transfer_.peer}; }});
    }

private:
    bool sends() const { return transfer_.direction == Direction::send; }
    int from() const { return sends() ? state_.rank_ : transfer_.peer; }
    int to() const { return sends() ? transfer_.peer : state_.rank_; }
    Channel& channel() const { return state_.region_.channel(from(), to()); }
    std::string describe() const {  // with the peer's rank in the job, as name() gives it
        Transfer shown = transfer_;
        shown.peer = state_.waiter_.job_rank(transfer_.peer);
        return backends::describe(shown);
    }

    // Whether it is this transfer's turn and there is room, or something, in the channel.
    bool ready() const {
        if (end_.finished.load(std::memory_order_acquire) != ticket_) return false;
        return sends() ? state_.can_send(end_, transfer_.peer)
                       : state_.can_receive(end_, transfer_.peer);
    }

    void move_chunk() {
        if (offered_) return finish();  // ready: the peer has read it
        std::byte* const slot = state_.region_.channel_slot(from(), to(), end_.chunks);
        if (sends()) {
            fill(slot);
        } else if (!take(slot)) {
            return;
        }
        ++end_.chunks;
        if (offered_) end_.until_read = end_.chunks;
        if (sends()) {
            channel().written.store(end_.chunks, channel_orders.write);
        } else {
            channel().read.store(end_.chunks, channel_orders.read);
        }
        Waiter::ring(state_.region_.block(transfer_.peer).inbox);
        if (sends() && transfer_.bytes <= few_lines) claim_next_chunk();
        if (moved_ == transfer_.bytes && !offered_) finish();
    }

    // The next message is likely of this size, and the peer has mostly read the lines it goes to.
    void claim_next_chunk() const {
        std::byte* const next = state_.region_.channel_slot(from(), to(), end_.chunks);
        backends::claim(next, std::min(transfer_.bytes, room()));
    }

    std::size_t room() const { return state_.region_.channel_slot_bytes(); }
    std::uint64_t& message_of_chunk() const {
        return channel().message[end_.chunks % channel_slots];
    }
    std::byte* left() const { return static_cast<std::byte*>(transfer_.data) + moved_; }

    void fill(std::byte* slot) {
        offered_ = moved_ == 0 && can_be_offered();
        if (offered_) {
            const std::uint64_t address = address_of(transfer_.data);
            std::memcpy(slot, &address, sizeof address);
        } else {
            const std::size_t count = std::min(room(), transfer_.bytes - moved_);
            state_.stores_.put(transfer_.bytes, slot, left(), count);
            moved_ += count;
        }
        // Last, since the receiver polls that line.
        message_of_chunk() = transfer_.bytes | (offered_ ? by_address : 0);
    }

    // Whether that was all of the chunk, or of what it offers.
    bool take(const std::byte* slot) {
        const std::uint64_t message = message_of_chunk();
        const bool reads = (message & by_address) != 0;
        if ((message & ~by_address) != transfer_.bytes) throw_mismatch(message & ~by_address);
        if (reads && !state_.peers_.reaches_peers()) {
            throw Error("shm: " + describe() + ": an address, for a rank that reads none");
        }
        const std::size_t count = std::min(reads ? read_at_once : room(), transfer_.bytes - moved_);
        if (reads) {
            std::uint64_t address = 0;
            std::memcpy(&address, slot, sizeof address);
            state_.peers_.read(transfer_.peer, address + moved_, left(), count,
                               [this] { return describe(); });
        } else {
            backends::copy(left(), slot, count);
        }
        moved_ += count;
        return !reads || moved_ == transfer_.bytes;
    }

    // Not what a channel holds whole: such a send ends before the receiver comes.
    bool can_be_offered() const {
        const Tuning& tuning = state_.region_.tuning();
        const std::size_t bytes = transfer_.bytes;
        if (bytes < tuning.direct_bytes_min || bytes > tuning.direct_bytes_max ||
            bytes <= channel_slots * room() || !state_.peers_.reaches(transfer_.peer)) {
            return false;
        }
        const std::span memory(static_cast<const std::byte*>(transfer_.data), bytes);
        return PeerMemory::can_be_reached(memory);
    }

    void finish() {
        done_ = true;
        end_.finished.store(ticket_ + 1, std::memory_order_release);
    }

    [[noreturn]] void throw_mismatch(std::uint64_t sent) const {
        state_.waiter_.abort(AbortReason::mismatch, transfer_.peer);
        throw UsageError("shm: " + describe() + ", but " + state_.waiter_.name(transfer_.peer) +
                         " sent " + std::to_string(sent) +
                         " bytes; sends and recvs of a pair of ranks meet in order, and must agree "
                         "in size");
    }

    TransferState& state_;
    Transfer transfer_;
    TransferState::End& end_;
    std::uint64_t ticket_;  // its place among the transfers of its channel
    std::size_t moved_ = 0;
    bool offered_ = false;  // a send that the peer reads from this rank's memory
    bool done_ = false;
};

TransferState::TransferState(SharedRegion& region, int rank, Waiter& waiter, PeerMemory& peers)
    : region_(region),
      rank_(rank),
      waiter_(waiter),
      peers_(peers),
      stores_(for_channels(region.tuning())),
      sends_(static_cast<std::size_t>(region.ranks())),
      receives_(static_cast<std::size_t>(region.ranks())) {}

TransferState::End& TransferState::end(const Transfer& transfer) {
    const auto peer = static_cast<std::size_t>(transfer.peer);
    return transfer.direction == Direction::send ? sends_[peer] : receives_[peer];
}

// The peer's counter is looked at only where what was seen of it does not do: its line costs as
// much as one of data.
bool TransferState::can_send(End& end, int peer) const {
    const auto can = [&] {
        return end.read >= end.until_read && end.chunks - end.read < channel_slots;
    };
    if (can()) return true;
    end.read = region_.channel(rank_, peer).read.load(channel_orders.see_read);
    return can();
}

bool TransferState::can_receive(const End& end, int peer) const {
    return region_.channel(peer, rank_).written.load(channel_orders.see_written) > end.chunks;
}

bool TransferState::any_ready() {
    for (int peer = 0; peer < region_.ranks(); ++peer) {
        const auto index = static_cast<std::size_t>(peer);
        if (sends_[index].is_open() && can_send(sends_[index], peer)) return true;
        if (receives_[index].is_open() && can_receive(receives_[index], peer)) return true;
    }
    return false;
}

std::vector<int> TransferState::open_peers() const {
    std::vector<int> peers;
    for (int peer = 0; peer < region_.ranks(); ++peer) {
        const auto index = static_cast<std::size_t>(peer);
        if (sends_[index].is_open() || receives_[index].is_open()) peers.push_back(peer);
    }
    return peers;
}

std::unique_ptr<backends::PendingTransfer> TransferState::start(const Transfer& transfer) {
    auto started = std::make_unique<ShmTransfer>(*this, transfer, end(transfer));
    Waiter::ring(region_.block(rank_)
                     .inbox);  // this rank's own thread, which may sleep beside other transfers
    return started;
}

}  // namespace ddp::shm
