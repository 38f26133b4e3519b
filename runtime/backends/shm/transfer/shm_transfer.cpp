#include "backends/shm/transfer/shm_transfer.hpp"

#include "backends/reduction/reduce.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstring>

namespace ddp::shm {

using backends::Direction;
using backends::Transfer;

namespace {

constexpr std::uint64_t rendezvous_flag = std::uint64_t{1} << 63;  // in Channel::message

// A rendezvous reads no more at a time, so that other transfers get their turn.
constexpr std::size_t max_read_bytes = std::size_t{1} << 20;

}  // namespace

class ShmTransfer : public backends::PendingTransfer {
public:
    ShmTransfer(TransferState& state, const Transfer& transfer, TransferState::ChannelEnd& end)
        : state_(state), transfer_(transfer), end_(end), ticket_(end.started++) {}

    // A chunk at a time: the others get their turn, and what the peer has sent is read before the
    // next one is written, into its place.
    bool advance() override {
        if (done_ || !ready()) return false;
        move_chunk();
        return true;
    }
    bool is_done() const override { return done_; }
    const Transfer& transfer() const override { return transfer_; }

    void rest(std::uint64_t round) override { state_.waiter_.back_off(round); }

    void wait_a_little(const base::Deadline&) override {
        // A rank that is no peer of a transfer may have done its part and left.
        const auto awake = [this] {
            return done_ || ready() || (!state_.waiter_.is_aborted() && state_.any_ready());
        };
        const auto inbox = [this]() -> Doorbell& {
            return state_.region_.block(state_.rank_).inbox;
        };
        // One thread sleeps for all transfers, so the peers of all are missing.
        state_.waiter_.wait_slice(
            inbox, awake, {[this] { return describe(); }, [this] { return state_.open_peers(); }});
    }

    void give_up(const base::Deadline& deadline) override {
        state_.waiter_.throw_timeout(
            deadline,
            {[this] { return describe(); }, [this] { return std::vector<int>{transfer_.peer}; }});
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

    // Whether this transfer is the channel's next, and the channel has a free chunk, or one to
    // read.
    bool ready() const {
        if (end_.finished.load(std::memory_order_acquire) != ticket_) return false;
        return sends() ? state_.can_send(end_, transfer_.peer)
                       : state_.can_receive(end_, transfer_.peer);
    }

    void move_chunk() {
        if (is_rendezvous_) return finish();  // ready: the receiver has read it
        ChunkPlace place;
        if (sends()) {
            place = write_chunk();
        } else {
            const std::uint64_t message = message_of_chunk();
            const std::uint64_t bytes = message & ~rendezvous_flag;
            if (bytes != transfer_.bytes) throw_mismatch(bytes);
            place = place_of_received(message);
            if (!read_chunk(places().address_of_received(place), message)) return;
        }
        ++end_.chunks;
        if (is_rendezvous_) end_.must_be_read = end_.chunks;
        if (sends()) {
            channel().written.store(end_.chunks, channel_orders.write);
        } else {
            channel().read.store(end_.chunks, channel_orders.read);
        }
        Waiter::notify(state_.region_.block(transfer_.peer).inbox);
        prefetch_next_place(place);
        if (moved_ == transfer_.bytes && !is_rendezvous_) finish();
    }

    // The next message is likely of this size. Where it will be written the receiver has mostly
    // read the last one, or this rank has just done so.
    void prefetch_next_place(const ChunkPlace& moved) const {
        const bool is_next = !sends() && places().note_read(moved);
        if (transfer_.bytes > max_prefetch_bytes) return;
        std::byte* next = nullptr;
        if (sends()) next = places().find_likely_next(end_.chunks, moved.bytes);
        if (is_next) next = places().address_of_received(moved);
        if (next != nullptr) backends::prefetch_for_write(next, moved.bytes);
    }

    ChunkPlaces& places() const { return state_.places_[static_cast<std::size_t>(transfer_.peer)]; }
    // Of the peer's next chunk.
    ChunkPlace place_of_received(std::uint64_t message) const {
        const bool is_address = (message & rendezvous_flag) != 0;
        const std::size_t bytes =
            is_address ? sizeof(std::uint64_t) : std::min(chunk_bytes(), transfer_.bytes - moved_);
        return ChunkPlace::of_word(channel().place[end_.chunks % channel_slots], bytes);
    }

    std::size_t chunk_bytes() const { return state_.region_.channel_slot_bytes(); }
    std::uint64_t& message_of_chunk() const {
        return channel().message[end_.chunks % channel_slots];
    }
    std::byte* remaining() const { return static_cast<std::byte*>(transfer_.data) + moved_; }

    ChunkPlace write_chunk() {
        is_rendezvous_ = moved_ == 0 && may_use_rendezvous();
        const std::size_t count = is_rendezvous_
                                      ? sizeof(std::uint64_t)
                                      : std::min(chunk_bytes(), transfer_.bytes - moved_);
        const std::uint64_t received = state_.receives_[static_cast<std::size_t>(to())].chunks;
        const ChunkPlace place =
            places().choose({end_.chunks, end_.read, received}, count, transfer_.bytes);
        std::byte* const slot = places().address_of_sent(place);
        if (is_rendezvous_) {
            const std::uint64_t address = address_of(transfer_.data);
            std::memcpy(slot, &address, sizeof address);
        } else {
            state_.slot_writer_.write(transfer_.bytes, slot, remaining(), count);
            moved_ += count;
        }
        // Last, since the receiver polls that line.
        message_of_chunk() = transfer_.bytes | (is_rendezvous_ ? rendezvous_flag : 0);
        channel().place[end_.chunks % channel_slots] = place.to_word();
        return place;
    }

    // Whether all of the chunk has been read; by rendezvous, all of the message.
    bool read_chunk(const std::byte* slot, std::uint64_t message) {
        const bool reads = (message & rendezvous_flag) != 0;
        if (reads && !state_.peers_.can_access_peers()) {
            throw Error("shm: " + describe() + ": an address, for a rank that reads none");
        }
        const std::size_t count =
            std::min(reads ? max_read_bytes : chunk_bytes(), transfer_.bytes - moved_);
        if (reads) {
            std::uint64_t address = 0;
            std::memcpy(&address, slot, sizeof address);
            state_.peers_.read(transfer_.peer, address + moved_, remaining(), count,
                               [this] { return describe(); });
        } else if (streams_output()) {
            backends::copy(remaining(), slot, count, backends::Store::streaming);
        } else {
            copy_from_slot(state_.region_.tuning().copying, remaining(), slot, count);
        }
        moved_ += count;
        return !reads || moved_ == transfer_.bytes;
    }

    bool streams_output() const {
        const std::uint64_t least = state_.region_.tuning().streaming.min_output_bytes;
        return least > 0 && transfer_.bytes >= least;
    }

    // Not for what a channel holds whole: such a send ends before the receiver has come.
    bool may_use_rendezvous() const {
        const Tuning& tuning = state_.region_.tuning();
        const std::size_t bytes = transfer_.bytes;
        if (bytes < tuning.direct.min_bytes || bytes > tuning.direct.max_bytes ||
            bytes <= channel_slots * chunk_bytes() ||
            !state_.peers_.can_access_peers(transfer_.peer)) {
            return false;
        }
        const std::span memory(static_cast<const std::byte*>(transfer_.data), bytes);
        return PeerMemory::is_accessible(memory);
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
    TransferState::ChannelEnd& end_;
    std::uint64_t ticket_;  // which transfer of its channel it is
    std::size_t moved_ = 0;
    bool is_rendezvous_ = false;  // a send whose receiver reads this rank's memory
    bool done_ = false;
};

TransferState::TransferState(SharedRegion& region, int rank, Waiter& waiter, PeerMemory& peers)
    : region_(region),
      rank_(rank),
      waiter_(waiter),
      peers_(peers),
      slot_writer_(region.tuning()),
      sends_(static_cast<std::size_t>(region.ranks())),
      receives_(static_cast<std::size_t>(region.ranks())) {
    for (int peer = 0; peer < region.ranks(); ++peer) places_.emplace_back(region, rank, peer);
}

TransferState::ChannelEnd& TransferState::end(const Transfer& transfer) {
    const auto peer = static_cast<std::size_t>(transfer.peer);
    return transfer.direction == Direction::send ? sends_[peer] : receives_[peer];
}

// The receiver's counter is loaded only where its last value does not suffice: its line costs as
// much as one of data.
bool TransferState::can_send(ChannelEnd& end, int peer) const {
    const auto can = [&] {
        return end.read >= end.must_be_read && end.chunks - end.read < channel_slots;
    };
    if (can()) return true;
    end.read = region_.channel(rank_, peer).read.load(channel_orders.see_read);
    return can();
}

bool TransferState::can_receive(const ChannelEnd& end, int peer) const {
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
    Waiter::notify(region_.block(rank_)
                       .inbox);  // this rank's own thread, which may sleep beside other transfers
    return started;
}

}  // namespace ddp::shm
