#include "launcher/hosts/member.hpp"

#include "launcher/hosts/messages/sighting_bytes.hpp"
#include "launcher/hosts/munge.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::size_t recent_samples = 16;
constexpr std::chrono::milliseconds say_silent_after = MembershipRules{}.say_silent_after;

}  // namespace

void ClockOffset::note(std::int64_t asked_ns, std::int64_t others_ns, std::int64_t now_ns) {
    if (now_ns < asked_ns) return;
    const std::int64_t round_trip = now_ns - asked_ns;
    samples_.push_back({round_trip, others_ns - asked_ns - round_trip / 2});
    if (samples_.size() > recent_samples) samples_.pop_front();
}

std::int64_t ClockOffset::to_others(std::int64_t ours_ns) const {
    if (samples_.empty()) return ours_ns;
    return ours_ns + std::ranges::min_element(samples_, {}, &Sample::round_trip_ns)->offset_ns;
}

Member::Member(JoinMessage join, std::chrono::milliseconds node_timeout, JobProof proof)
    : join_(std::move(join)), proof_(std::move(proof)), lease_(node_timeout) {
    if (!proof_.credential_for.empty()) proof_.tls.reset();  // each coordinator tells it
}

void Member::begin(base::UniqueFd connection, Time now) {
    began_ = now;
    link_.emplace(std::move(connection), Link::Begins::with_frames);
    link_->queue_hello(!proof_.credential_for.empty() ? Transport::credential
                       : proof_.tls                   ? Transport::tls
                                                      : Transport::clear);
    if (may_speak()) begin_speaking();
    link_->flush();
    look_at_time(now);
}

void Member::begin_speaking() {
    if (proof_.tls) link_->begin_tls(proof_.tls->session(TlsRole::client, "the coordinator"));
    link_->queue(encode(FromMember(join_)));
}

void Member::run_ready() {
    if (!link_) return;
    link_->receive();
    look_at_tls();
    while (const auto frame = is_over_ ? std::nullopt : link_->next()) {
        try {
            FromCoordinator message = decode_from_coordinator(*frame);
            may_speak() ? handle(std::move(message)) : take_credential(message);
        } catch (const UsageError& error) {
            link_->close(error.what());
        }
    }
    link_->flush();
    if (is_over_) link_->close("the job is over");
    if (!link_->is_open() && !is_over_) lose(link_->trouble());
}

// Never without TLS where this host has a token: that would be what somebody in between wants.
void Member::look_at_tls() {
    std::string why = link_->tls_refusal();
    if (!why.empty() && !is_over_) refuse(std::move(why));
}

void Member::refuse(std::string why) {
    is_over_ = true;
    orders_.emplace_back(RefusedMessage{std::move(why)});
}

// In the clear, from whoever listens there: nothing else counts, but that it takes nobody in.
void Member::take_credential(const FromCoordinator& message) {
    if (const auto* said = std::get_if<CredentialMessage>(&message)) {
        try {
            proof_.tls.emplace(decode_credential(said->credential, proof_.credential_for));
            proof_.credential = said->credential;
            begin_speaking();
        } catch (const UsageError& error) {
            refuse("no proof by MUNGE that the coordinator is of this user: " +
                   std::string(error.what()));
        }
        return;
    }
    const auto* to_member = std::get_if<MemberMessage>(&message);
    if (to_member == nullptr || !std::holds_alternative<RefusedMessage>(*to_member)) {
        return link_->close("it speaks before it has proved itself");
    }
    handle(message);
}

void Member::look_at_time(Time now) {
    if (!link_ || is_over_) return;
    if (is_welcome_ && !std::exchange(counts_lease_, true)) lease_.count_from(now);
    if (counts_lease_ && lease_.is_over(now)) {
        lose("the coordinator has not answered for too long");
    }
    if (now < next_beat_ || !link_->is_open() || !may_speak()) return;
    next_beat_ = now + between_beats;
    look_at_silence();
    send(
        BeatMessage{.number = lease_.beat(now), .clock_ns = clock_ns_of(now), .echo_ns = echo_ns_});
}

std::optional<Member::Time> Member::next() const {
    if (!link_ || is_over_ || !link_->is_open() || !may_speak()) return std::nullopt;
    const auto ends = lease_.ends();
    return ends ? std::min(*ends, next_beat_) : next_beat_;
}

void Member::look_at_silence() {
    const bool is_silent = link_->silent_for() >= say_silent_after;
    if (is_silent == is_silent_) return;
    is_silent_ = is_silent;
    orders_.emplace_back(CoordinatorSilence{.is_over = !is_silent});
}

void Member::handle(FromCoordinator message) {
    if (const auto* reply = std::get_if<BeatReply>(&message)) {
        echo_ns_ = reply->clock_ns;
        if (reply->number != 0) lease_.answered(reply->number);
        if (reply->clock_of_beat_ns == 0) return;  // to no beat
        // The time after it was read, not that of the turn.
        clock_.note(reply->clock_of_beat_ns, reply->clock_ns,
                    clock_ns_of(std::chrono::steady_clock::now()));
        return;
    }
    if (const auto* question = std::get_if<VouchMessage>(&message)) {
        return send(VouchedMessage{question->question, voucher_.vouches_for(*question)});
    }
    std::visit(
        [&](auto& one) {
            using Message = std::decay_t<decltype(one)>;
            if constexpr (std::is_same_v<Message, MemberMessage>) {
                is_over_ = is_over_ || std::holds_alternative<RefusedMessage>(one) ||
                           std::holds_alternative<FinishMessage>(one);
                std::visit([&](auto& of_member) { orders_.emplace_back(std::move(of_member)); },
                           one);
            } else if constexpr (!std::is_same_v<Message, CredentialMessage> &&
                                 !std::is_same_v<Message, BeatReply> &&
                                 !std::is_same_v<Message, VouchMessage>) {
                if constexpr (std::is_same_v<Message, WelcomeMessage>) {
                    lease_.set_length(one.node_timeout);
                    is_welcome_ = true;
                }
                orders_.emplace_back(std::move(one));
            }
        },
        message);
}

std::optional<MemberOrder> Member::take_order(Time now) {
    if (orders_.empty()) return std::nullopt;
    const bool is_round = std::holds_alternative<RoundMessage>(orders_.front());
    if (is_round && !lease_.holds(now)) {
        if (!is_over_) return std::nullopt;
        orders_.pop_front();  // no lease will come
        return take_order(now);
    }
    MemberOrder order = std::move(orders_.front());
    orders_.pop_front();
    return order;
}

// What this host's workers do from now on is no part of the job: the coordinator hears none of it.
void Member::lose(const std::string& why) {
    if (!lost_.empty()) return;
    lost_ = why;
    link_->close(why);
}

void Member::send(const FromMember& message) {
    if (!link_) return;
    link_->queue(encode(message));
    link_->flush();
}

void Member::started(int round) { send(StartedMessage{round}); }

void Member::ended(int round, Time at, WorkerEnd end) {
    send(EndedMessage{
        .round = round, .clock_ns = clock_.to_others(clock_ns_of(at)), .end = std::move(end)});
}

void Member::saw(SightingMessage message) {
    shift_clock(message.seen, std::chrono::nanoseconds(clock_.to_others(0)));
    send(std::move(message));
}

void Member::timeline(TimelineMessage message) {
    shift_clock(message.part, std::chrono::nanoseconds(clock_.to_others(0)));
    send_in_turn(std::move(message));
}

// Beats go before it.
void Member::send_in_turn(const FromMember& message) {
    if (!link_) return;
    link_->queue_later(encode(message));
    link_->flush();
}

void Member::drained(DrainedMessage message) { send_in_turn(std::move(message)); }
void Member::leave() { send_in_turn(LeaveMessage{}); }
void Member::ask_to_stop(int signal) { send(StopJobMessage{signal}); }

}  // namespace ddp::launcher
