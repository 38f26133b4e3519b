#include "backends/gloo/transport/ucx_transport.hpp"

#include "backends/gloo/slots.hpp"
#include "backends/gloo/transport/ucx_start.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace ddp::gloo {
namespace {

using namespace std::chrono_literals;

constexpr auto look_interval = 20ms;  // for trouble elsewhere

// UCX matches messages by tag: the slot, and who has sent it.
std::uint64_t tag_of(std::uint64_t slot, int sender) {
    return slot << 32U | static_cast<std::uint32_t>(sender);
}

ucp_request_param_t memory_of_host() {
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.memory_type = UCS_MEMORY_TYPE_HOST;
    return parameters;
}

// One that is not done is cancelled. Its memory is written to no more only once its connection is
// closed.
class UcxOperation : public Operation {
public:
    UcxOperation(UcxProgress& progress, int peer) : Operation(peer), progress_(progress) {}
    ~UcxOperation() override {
        if (request_ == nullptr) return;
        const auto held = progress_.lock();
        progress_.uncount_request();
        std::vector<void*> requests{request_};
        progress_.abandon(requests);
    }

    // With the lock.
    void begin(void* request) {
        request_ = request;
        if (request_ != nullptr) progress_.count_request();
    }
    ucs_status_t finish() {
        if (request_ == nullptr) return UCS_OK;
        const ucs_status_t status = progress_.finish(request_);
        if (request_ == nullptr) progress_.uncount_request();
        return status;
    }

private:
    UcxProgress& progress_;
    void* request_ = nullptr;  // null: done
};

// Before the other ranks' addresses are known.
class Start : public UcxStart {
public:
    explicit Start(const std::string& interface)
        : worker_(std::make_unique<UcxWorker>(interface)) {}

    std::string address() const override { return worker_->address(); }
    std::string wire_version() const override { return worker_->wire_version(); }
    std::unique_ptr<Transport> connect(int rank, std::vector<PeerProcess> processes,
                                       const std::vector<std::string>& addresses,
                                       const base::Deadline& deadline,
                                       std::function<bool()> has_trouble) override {
        auto transport = std::make_unique<UcxTransport>(rank, std::move(processes),
                                                        std::move(worker_), std::move(has_trouble));
        transport->connect(addresses, deadline);
        return transport;
    }

private:
    std::unique_ptr<UcxWorker> worker_;
};

}  // namespace

std::unique_ptr<UcxStart> start_ucx(const std::string& interface) {
    return std::make_unique<Start>(interface);
}

UcxTransport::UcxTransport(int rank, std::vector<PeerProcess> processes,
                           std::unique_ptr<UcxWorker> worker, std::function<bool()> has_trouble)
    : rank_(rank),
      processes_(std::move(processes)),
      has_trouble_(std::move(has_trouble)),
      peers_(processes_.size()),
      progress_(std::move(worker)) {
    for (Peer& peer : peers_) peer.transport = this;
}

void UcxTransport::connect(const std::vector<std::string>& addresses,
                           const base::Deadline& deadline) {
    {
        const Lock held = progress_.lock();
        for (int peer = 0; peer < size(); ++peer) {
            if (peer == rank_) continue;
            open_endpoint(peer, addresses[static_cast<std::size_t>(peer)]);
            expect_notice(peer);
        }
    }
    // Who has the second one from all ranks knows that each has the first one from all: all
    // connections stand.
    say_hello(first_hello_slot, deadline);
    say_hello(second_hello_slot, deadline);
}

void UcxTransport::refuse(int peer, const std::string& reason) const {
    throw BackendError("ucx", 0,
                       "cannot connect to rank " + std::to_string(peer) + " on host " +
                           processes_[static_cast<std::size_t>(peer)].host + ": " + reason);
}

void UcxTransport::open_endpoint(int rank, const std::string& address) {
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    parameters.err_handler.arg = &peer(rank);
    parameters.err_handler.cb = [](void* argument, ucp_ep_h, ucs_status_t) {
        Peer& failed = *static_cast<Peer*>(argument);
        failed.failed = true;
        failed.transport->has_news_ = true;
    };
    const ucs_status_t status =
        progress_.ucx().message.ep_create(progress_.worker(), &parameters, &peer(rank).endpoint);
    if (status != UCS_OK) refuse(rank, progress_.ucx().status_string(status));
}

void UcxTransport::expect_notice(int rank) {
    Peer& from = peer(rank);
    ucp_request_param_t parameters = memory_of_host();
    parameters.op_attr_mask |=
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    parameters.user_data = this;
    parameters.cb.recv = [](void*, ucs_status_t, const ucp_tag_recv_info_t*, void* transport) {
        static_cast<UcxTransport*>(transport)->has_news_ = true;
    };
    from.notice_request =
        throw_if_error(rank, progress_.ucx().message.tag_recv_nbx(
                                 progress_.worker(), &from.received, sizeof from.received,
                                 tag_of(abort_notice_slot, rank), ~std::uint64_t{0}, &parameters));
}

void UcxTransport::say_hello(std::uint64_t slot, const base::Deadline& deadline) {
    std::vector<char> bytes(peers_.size() + 1);
    std::vector<Message> messages;
    for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank_) continue;
        messages.push_back(
            {Direction::receive, peer, slot, &bytes[static_cast<std::size_t>(peer)], 1});
        messages.push_back({Direction::send, peer, slot, &bytes.back(), 1});
    }
    Operations operations;
    std::optional<int> missing;
    try {
        start(messages, Progress::by_waiter, operations);
        missing = wait(operations, &deadline);
    } catch (const TransportError& error) {
        refuse(error.peer(), error.what());
    }
    if (!missing) return;
    refuse(*missing, peer(*missing).gone
                         ? "the connection is closed"
                         : "it does not answer, for " + base::to_string(deadline.timeout()));
}

void* UcxTransport::throw_if_error(int peer, void* request) const {
    if (UCS_PTR_IS_ERR(request)) {
        throw TransportError(peer, progress_.ucx().status_string(UCS_PTR_STATUS(request)));
    }
    return request;
}

void* UcxTransport::post(const Message& message) {
    const ucp_request_param_t parameters = memory_of_host();
    if (message.direction == Direction::receive) {
        return progress_.ucx().message.tag_recv_nbx(progress_.worker(), message.data, message.bytes,
                                                    tag_of(message.slot, message.peer),
                                                    ~std::uint64_t{0}, &parameters);
    }
    return progress_.ucx().message.tag_send_nbx(peer(message.peer).endpoint, message.data,
                                                message.bytes, tag_of(message.slot, rank_),
                                                &parameters);
}

void UcxTransport::start(std::span<const Message> messages, Progress progress,
                         Operations& started) {
    Lock held = progress_.lock();
    advance_all(held);  // notices are read before anything is written after them
    look_for_news();
    for_each_in_order(messages, [&](const Message& message) {
        // What a peer sent before it left may be here already.
        const bool lost = message.direction == Direction::send && peer(message.peer).failed;
        if (closed_ || troubled_ || lost) {
            throw TransportError(message.peer, "the connection is closed");
        }
        auto operation = std::make_unique<UcxOperation>(progress_, message.peer);
        operation->begin(throw_if_error(message.peer, post(message)));
        started.push_back(std::move(operation));
    });
    if (progress == Progress::by_waiter || started.empty()) return;
    if (!progress_.has_requests()) {  // but a part of it may wait in UCX's memory
        auto flush = std::make_unique<UcxOperation>(progress_, started.back()->peer());
        flush->begin(progress_.start_flush());
        started.push_back(std::move(flush));
    }
    progress_.advance_in_background();
}

std::optional<int> UcxTransport::wait(const Operations& operations,
                                      const base::Deadline* deadline) {
    Lock held = progress_.lock();
    const UcxProgress::Waiter waiter(progress_);
    Clock::time_point next_look = Clock::now() + look_interval;
    for (const auto& one : operations) {
        auto& operation = static_cast<UcxOperation&>(*one);
        const int peer = operation.peer();
        for (;;) {
            const ucs_status_t status = operation.finish();
            if (status == UCS_OK) break;
            look_for_news();
            if (closed_ || troubled_) return peer;
            if (status != UCS_INPROGRESS) {
                throw TransportError(peer, progress_.ucx().status_string(status));
            }
            if (peers_[static_cast<std::size_t>(peer)].gone) {
                throw TransportError(peer, "the connection is closed");
            }
            if (!go_on(held, deadline, next_look)) return peer;
        }
    }
    // What UCX has taken may wait in memory of its own, which nobody would send while this rank is
    // elsewhere. While other messages are under way somebody moves it anyway, and waits for the
    // same at their end; this wait need not last as long as theirs.
    std::vector<void*> flush{progress_.has_requests() ? nullptr : progress_.start_flush()};
    bool goes_on = true;
    while (goes_on && progress_.finish(flush[0]) == UCS_INPROGRESS && !progress_.has_requests()) {
        look_for_news();
        goes_on = !closed_ && !troubled_ && go_on(held, deadline, next_look);
    }
    progress_.abandon(flush);
    if (goes_on) return std::nullopt;
    return operations.back()->peer();
}

// A step of a wait. False: the deadline has passed, or there is trouble elsewhere.
bool UcxTransport::go_on(Lock& held, const base::Deadline* deadline, Clock::time_point& next_look) {
    if (progress_.advance(held)) return true;
    const Clock::time_point now = Clock::now();
    if (deadline != nullptr && now >= deadline->end()) return false;
    if (now >= next_look) {
        next_look = now + look_interval;
        if (has_trouble_elsewhere(held)) return false;
    }
    progress_.rest(held);
    return true;
}

bool UcxTransport::has_trouble_elsewhere(Lock& held) {
    held.unlock();
    const bool trouble = has_trouble_();
    held = progress_.lock();
    return trouble;
}

// What has come by now; others may keep it coming.
void UcxTransport::advance_all(Lock& held) {
    for (int i = 0; i < 100 && progress_.advance(held); ++i) {
    }
}

// The notice, where there is one, came before the connection closed.
void UcxTransport::look_for_news() {
    if (!has_news_) return;
    has_news_ = false;
    for (Peer& peer : peers_) {
        if (peer.gone || peer.endpoint == nullptr) continue;
        if (peer.notice_request != nullptr && progress_.finish(peer.notice_request) == UCS_OK) {
            peer.notice = decode(peer.received);
        }
        peer.gone = peer.notice || peer.failed;
        if (peer.gone && (!peer.notice || peer.notice->kind != AbortKind::left)) troubled_ = true;
    }
}

bool UcxTransport::is_troubled() noexcept {
    Lock held = progress_.lock();
    progress_.advance(held);
    look_for_news();
    return troubled_;
}

std::vector<Transport::Gone> UcxTransport::list_gone(int suspect) {
    Lock held = progress_.lock();
    const auto suspect_is_gone = [&] {
        look_for_news();
        return closed_ || suspect < 0 || suspect == rank_ || peer(suspect).gone;
    };
    advance_all(held);
    progress_.advance_until(held, base::Deadline::after(notice_grace), suspect_is_gone);
    std::vector<Gone> gone;
    for (int rank = 0; rank < size(); ++rank) {
        if (peer(rank).gone) gone.push_back({rank, peer(rank).notice});
    }
    return gone;
}

std::optional<AbortReason> UcxTransport::wait_for_notice(int rank) noexcept {
    if (rank == rank_) return std::nullopt;
    Lock held = progress_.lock();
    progress_.advance_until(held, base::Deadline::after(notice_grace), [&] {
        look_for_news();
        return peer(rank).gone || closed_;
    });
    return peer(rank).notice;
}

void UcxTransport::send_abort_notice(const AbortReason& reason) noexcept {
    Lock held = progress_.lock();
    if (closed_) return;
    own_notice_ = encode(reason);
    std::vector<void*> requests;
    const ucp_request_param_t parameters = memory_of_host();
    for (int rank = 0; rank < size(); ++rank) {
        const Peer& to = peer(rank);
        if (to.endpoint == nullptr || to.gone || to.failed) continue;
        requests.push_back(
            progress_.ucx().message.tag_send_nbx(to.endpoint, &own_notice_, sizeof own_notice_,
                                                 tag_of(abort_notice_slot, rank_), &parameters));
    }
    requests.push_back(progress_.start_flush());
    finish_all(held, requests);
    if (reason.kind == AbortKind::left) return;
    // Who has heard it says so with a notice of its own.
    progress_.advance_until(held, base::Deadline::after(answering_grace), [&] {
        look_for_news();
        return std::all_of(peers_.begin(), peers_.end(),
                           [](const Peer& peer) { return peer.gone || peer.endpoint == nullptr; });
    });
}

// Nothing is closed before this transport goes: a peer that still writes to a closed connection
// would lose the notice that waits in its own.
void UcxTransport::stop() noexcept {
    const Lock held = progress_.lock();
    closed_ = true;
    progress_.stop();
}

// Nothing moves any more: what is not done is cancelled or forgotten, and the worker closes the
// connections as it goes. (An endpoint that is closed before would keep receiving into memory of
// messages that have begun, and one that a flush still holds would end the process.)
UcxTransport::~UcxTransport() {
    const Lock held = progress_.lock();
    closed_ = true;
    progress_.stop();
    std::vector<void*> requests;
    for (Peer& peer : peers_) {
        if (peer.notice_request != nullptr) requests.push_back(peer.notice_request);
    }
    progress_.abandon(requests);
}

// Within a short while; what is not done by then is given up.
void UcxTransport::finish_all(Lock& held, std::vector<void*>& requests) {
    std::erase_if(requests, [](void* request) { return !UCS_PTR_IS_PTR(request); });
    progress_.advance_until(held, base::Deadline::after(writing_grace), [&] {
        std::erase_if(requests,
                      [&](void*& request) { return progress_.finish(request) != UCS_INPROGRESS; });
        return requests.empty();
    });
    progress_.abandon(requests);
}

}  // namespace ddp::gloo
