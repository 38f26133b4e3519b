#include "launcher/hosts/messages/messages.hpp"

#include "launcher/hosts/messages/message_bytes.hpp"
#include "launcher/hosts/messages/sighting_bytes.hpp"
#include "launcher/options/option_kinds.hpp"

#include <algorithm>
#include <limits>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t max_hosts = 100'000;
constexpr int no_number =
    -1;  // where an optional number is not there; ranks and peers are not below 0

using Type = MessageType;
using Writer = MessageWriter;
using Reader = MessageReader;

std::uint16_t take_port(Reader& in) {
    const int port = in.number();
    if (port > std::numeric_limits<std::uint16_t>::max()) refuse_message("no port is so high");
    return static_cast<std::uint16_t>(port);
}

// Up --------------------------------------------------------------------------------------------

std::string bytes_of(const JoinMessage& message) {
    const HostSize& size = message.size;
    Writer out(Type::join);
    out.text(message.job).text(size.host).number(size.slots);
    out.number(size.node_rank.value_or(no_number)).flag(size.is_endpoint).number(size.started_ns);
    out.text(size.role).number(message.min_hosts).number(message.max_hosts);
    return out.number(size.port).number(size.was_in_round).number(size.was_member).take();
}
JoinMessage take_join(Reader& in) {
    JoinMessage message;
    message.job = in.text();
    message.size.host = in.text();
    message.size.slots = in.number(0);
    if (message.size.slots > max_workers) refuse_message("a host has too many workers");
    const int node_rank = in.number(no_number);
    if (node_rank != no_number) message.size.node_rank = node_rank;
    message.size.is_endpoint = in.flag();
    message.size.started_ns = in.wide();
    message.size.role = in.text();
    message.min_hosts = in.number(1);
    message.max_hosts = in.number(message.min_hosts);
    message.size.port = take_port(in);
    message.size.was_in_round = in.number();
    message.size.was_member = in.unsigned_wide();
    return message;
}

std::string bytes_of(const BeatMessage& message) {
    Writer out(Type::beat);
    return out.number(message.number).number(message.clock_ns).number(message.echo_ns).take();
}
BeatMessage take_beat(Reader& in) {
    BeatMessage message;
    message.number = in.unsigned_wide();
    message.clock_ns = in.wide();
    message.echo_ns = in.wide();
    return message;
}

std::string bytes_of(const StartedMessage& message) {
    return Writer(Type::started).number(message.round).take();
}

void put_error(Writer& out, const std::optional<contract::ErrorReport>& error) {
    out.flag(error.has_value());
    if (!error) return;
    out.text(error->message).number(error->peer.value_or(no_number)).text(error->callstack);
    out.flag(error->timestamp.has_value());
    if (error->timestamp) out.number(*error->timestamp);
}
std::optional<contract::ErrorReport> take_error(Reader& in) {
    if (!in.flag()) return std::nullopt;
    contract::ErrorReport error;
    error.message = in.text();
    const int peer = in.number(no_number);
    if (peer != no_number) error.peer = peer;
    error.callstack = in.text();
    if (in.flag()) error.timestamp = in.wide();
    return error;
}

std::string bytes_of(const EndedMessage& message) {
    const WorkerEnd& end = message.end;
    Writer out(Type::ended);
    out.number(message.round).number(message.clock_ns);
    out.number(end.rank).number(end.local_rank).number(end.pid);
    out.number(end.status.code).number(end.status.signal).flag(end.status.core_dumped);
    out.number(end.stopped_with).number(std::int64_t{end.ran_for.count()});
    out.number(std::int64_t{end.stop_took.count()});
    put_error(out, end.error);
    out.small(static_cast<std::uint8_t>(end.oom));
    return out.text(end.gpu).text(end.last_stderr).text(end.last_call).take();
}
EndedMessage take_ended(Reader& in) {
    EndedMessage message;
    message.round = in.number();
    message.clock_ns = in.wide();
    WorkerEnd& end = message.end;
    end.rank = in.number();
    end.local_rank = in.number();
    end.pid = in.number();
    end.status.code = in.number();
    end.status.signal = in.number();
    end.status.core_dumped = in.flag();
    end.stopped_with = in.number();
    end.ran_for = milliseconds(in.wide());
    end.stop_took = milliseconds(in.wide());
    end.error = take_error(in);
    end.oom = static_cast<OomEvidence>(in.small(static_cast<std::uint8_t>(OomEvidence::cgroup)));
    end.gpu = in.text();
    end.last_stderr = in.text();
    end.last_call = in.text();
    return message;
}

std::string bytes_of(const DrainedMessage& message) {
    Writer out(Type::drained);
    out.number(message.round).flag(message.end == PartEnd::failure);
    return out.text(message.trouble).number(message.exit_code).take();
}
DrainedMessage take_drained(Reader& in) {
    DrainedMessage message;
    message.round = in.number();
    message.end = in.flag() ? PartEnd::failure : PartEnd::success;
    message.trouble = in.text();
    message.exit_code = in.number();
    return message;
}

std::string bytes_of(const VouchedMessage& message) {
    return Writer(Type::vouched).number(message.question).flag(message.is_of_job).take();
}
VouchedMessage take_vouched(Reader& in) {
    VouchedMessage message;
    message.question = in.unsigned_wide();
    message.is_of_job = in.flag();
    return message;
}

std::string bytes_of(const ProgressMessage& message) {
    Writer out(Type::progress);
    out.number(message.round).number(message.running);
    return out.number(message.step).number(message.steps_in_1000_s).take();
}
ProgressMessage take_progress(Reader& in) {
    ProgressMessage message;
    message.round = in.number();
    message.running = in.number();
    message.step = in.wide();
    message.steps_in_1000_s = in.wide();
    if (message.step < 0 || message.steps_in_1000_s < 0) refuse_message("a number is outside");
    return message;
}

std::string bytes_of(const SightingMessage& message) {
    Writer out(Type::sighting);
    out.number(message.round).number(message.question);
    put_sighting(out, message.seen);
    return out.take();
}
SightingMessage take_sighting_message(Reader& in) {
    SightingMessage message;
    message.round = in.number();
    message.question = in.unsigned_wide();
    message.seen = take_sighting(in);
    return message;
}

std::string bytes_of(const PacesMessage& message) {
    Writer out(Type::paces);
    out.number(message.round);
    put_paces(out, message.paces);
    return out.take();
}
PacesMessage take_paces_message(Reader& in) {
    PacesMessage message;
    message.round = in.number();
    message.paces = take_paces(in);
    return message;
}

std::string bytes_of(const RowsMessage& message) {
    Writer out(Type::rows);
    out.number(message.round).number(message.question);
    put_rows(out, message.rows);
    return out.take();
}
RowsMessage take_rows_message(Reader& in) {
    RowsMessage message;
    message.round = in.number();
    message.question = in.unsigned_wide();
    message.rows = take_rows(in);
    return message;
}

std::string bytes_of(const TimelineMessage& message) {
    Writer out(Type::timeline);
    out.number(message.round);
    put_timeline(out, message.part);
    return out.take();
}
TimelineMessage take_timeline_message(Reader& in) {
    TimelineMessage message;
    message.round = in.number();
    message.part = take_timeline(in);
    return message;
}

std::string bytes_of(const LeaveMessage&) { return Writer(Type::leave).take(); }

std::string bytes_of(const StopJobMessage& message) {
    return Writer(Type::stop_job).number(message.signal).take();
}

// Down ------------------------------------------------------------------------------------------

std::string bytes_of(const WelcomeMessage& message) {
    Writer out(Type::welcome);
    out.number(message.member).text(message.run_id).text(message.run).text(message.host);
    out.number(std::int64_t{message.node_timeout.count()});
    out.flag(message.has_successors).flag(message.wants_progress);
    return out.flag(message.wants_timeline).take();
}
WelcomeMessage take_welcome(Reader& in) {
    WelcomeMessage message;
    message.member = in.unsigned_wide();
    message.run_id = in.text();
    message.run = in.text();
    message.host = in.text();
    message.node_timeout = milliseconds(in.number(1));
    message.has_successors = in.flag();
    message.wants_progress = in.flag();
    message.wants_timeline = in.flag();
    return message;
}

std::string bytes_of(const BeatReply& message) {
    Writer out(Type::beat_reply);
    return out.number(message.number)
        .number(message.clock_of_beat_ns)
        .number(message.clock_ns)
        .take();
}
BeatReply take_beat_reply(Reader& in) {
    BeatReply message;
    message.number = in.unsigned_wide();
    message.clock_of_beat_ns = in.wide();
    message.clock_ns = in.wide();
    return message;
}

std::string bytes_of(const CredentialMessage& message) {
    return Writer(Type::credential).text(message.credential).take();
}
std::string bytes_of(const KillRoundMessage& message) {
    return Writer(Type::kill).number(message.round).take();
}
// Each host has names of its own for its links.
std::string without_scope(const std::string& host) { return host.substr(0, host.find('%')); }

std::string bytes_of(const VouchMessage& message) {
    Writer out(Type::vouch);
    out.number(message.question);
    out.text(without_scope(message.there.host())).number(int{message.there.port()});
    return out.text(without_scope(message.here.host())).number(int{message.here.port()}).take();
}
base::SocketAddress take_address(Reader& in) {
    const std::string host = in.text();
    const auto address = base::numeric_address(host, take_port(in));
    if (!address || without_scope(address->host()) != host) refuse_message("an address is none");
    return *address;
}
VouchMessage take_vouch(Reader& in) {
    VouchMessage message;
    message.question = in.unsigned_wide();
    message.there = take_address(in);
    message.here = take_address(in);
    return message;
}

std::string bytes_of(const LookMessage& message) {
    Writer out(Type::look);
    out.number(message.round).number(message.question).number(message.calls.size());
    for (const CallKey call : message.calls) out.number(call);
    out.number(message.stacks_of.size());
    for (const int rank : message.stacks_of) out.number(rank);
    return out.take();
}
LookMessage take_look(Reader& in) {
    LookMessage message;
    message.round = in.number();
    message.question = in.unsigned_wide();
    const std::uint64_t count = in.unsigned_wide();
    if (count > most_calls_asked) refuse_message("it asks for too many calls");
    for (std::uint64_t i = 0; i < count; ++i) message.calls.push_back(in.unsigned_wide());
    const std::uint64_t ranks = in.unsigned_wide();
    if (ranks > most_stacks_asked) refuse_message("it asks for too many stacks");
    for (std::uint64_t i = 0; i < ranks; ++i) message.stacks_of.push_back(in.number());
    return message;
}

std::string bytes_of(const ShowMessage& message) {
    return Writer(Type::show).number(message.round).number(message.question).take();
}
ShowMessage take_show(Reader& in) {
    ShowMessage message;
    message.round = in.number();
    message.question = in.unsigned_wide();
    return message;
}

std::string bytes_of(const SayMessage& message) {
    return Writer(Type::say).text(message.text).flag(message.is_failure).take();
}
SayMessage take_say(Reader& in) {
    SayMessage message;
    message.text = in.text();
    message.is_failure = in.flag();
    return message;
}

std::string bytes_of(const RefusedMessage& message) {
    return Writer(Type::refused).text(message.why).take();
}
std::string bytes_of(const WaitMessage& message) {
    return Writer(Type::wait).flag(message.is_spare).take();
}
std::string bytes_of(const FinishMessage& message) {
    return Writer(Type::finish).number(message.exit_code).take();
}

std::string bytes_of(const StopRoundMessage& message) {
    Writer out(Type::stop);
    out.number(message.round).small(static_cast<std::uint8_t>(message.reason));
    return out.number(message.rank).number(message.signal).take();
}
StopRoundMessage take_stop(Reader& in) {
    StopRoundMessage message;
    message.round = in.number();
    message.reason = static_cast<StopReason>(in.small(static_cast<std::uint8_t>(StopReason::hang)));
    message.rank = in.number(no_number);
    message.signal = in.number();
    return message;
}

std::string bytes_of(const RoundMessage& message) {
    Writer out(Type::round);
    out.number(message.round).number(message.restarts).number(message.coordinator);
    out.number(message.table.hosts.size());
    for (const HostRanks& host : message.table.hosts) {
        out.number(host.member).text(host.host).text(host.address).number(host.slots);
        out.number(host.first_role_rank).number(host.role_world_size).number(host.port);
    }
    return out.take();
}
// Group ranks and first ranks follow from the order and the sizes.
RoundMessage take_round(Reader& in) {
    RoundMessage message;
    message.round = in.number(1);
    message.restarts = in.number();
    message.coordinator = in.unsigned_wide();
    const std::uint64_t count = in.unsigned_wide();
    if (count == 0 || count > max_hosts) refuse_message("a round has no hosts, or too many");
    RankTable& table = message.table;
    for (std::uint64_t i = 0; i < count; ++i) {
        HostRanks host;
        host.member = in.unsigned_wide();
        host.host = in.text();
        host.address = in.text();
        host.group_rank = static_cast<int>(i);
        host.first_rank = table.world_size;
        host.slots = in.number(1);
        host.first_role_rank = in.number();
        host.role_world_size = in.number(1);
        host.port = take_port(in);
        if (host.slots > std::numeric_limits<int>::max() - table.world_size) {
            refuse_message("a round has too many ranks");
        }
        table.world_size += host.slots;
        table.hosts.push_back(std::move(host));
    }
    return message;
}

std::string bytes_of(const MemberMessage& message) {
    return std::visit([](const auto& one) { return bytes_of(one); }, message);
}

template <class Message>
Message ended(Reader& in, Message message) {
    in.end();
    return message;
}

}  // namespace

std::string encode(const FromMember& message) {
    return std::visit([](const auto& one) { return bytes_of(one); }, message);
}

std::string encode(const FromCoordinator& message) {
    return std::visit([](const auto& one) { return bytes_of(one); }, message);
}

FromMember decode_from_member(std::string_view frame) {
    Reader in(frame);
    switch (in.type()) {
        case Type::join:
            return ended(in, take_join(in));
        case Type::beat:
            return ended(in, take_beat(in));
        case Type::started:
            return ended(in, StartedMessage{in.number()});
        case Type::ended:
            return ended(in, take_ended(in));
        case Type::drained:
            return ended(in, take_drained(in));
        case Type::vouched:
            return ended(in, take_vouched(in));
        case Type::progress:
            return ended(in, take_progress(in));
        case Type::sighting:
            return ended(in, take_sighting_message(in));
        case Type::paces:
            return ended(in, take_paces_message(in));
        case Type::rows:
            return ended(in, take_rows_message(in));
        case Type::timeline:
            return ended(in, take_timeline_message(in));
        case Type::stacks:
            return ended(in, take_stacks_message(in));
        case Type::threads:
            return ended(in, take_threads_message(in));
        case Type::readings:
            return ended(in, take_readings_message(in));
        case Type::leave:
            return ended(in, LeaveMessage{});
        case Type::stop_job:
            return ended(in, StopJobMessage{in.number(1)});
        default:
            refuse_message("no message of a member");
    }
}

FromCoordinator decode_from_coordinator(std::string_view frame) {
    Reader in(frame);
    switch (in.type()) {
        case Type::welcome:
            return ended(in, take_welcome(in));
        case Type::beat_reply:
            return ended(in, take_beat_reply(in));
        case Type::kill:
            return ended(in, KillRoundMessage{in.number(1)});
        case Type::vouch:
            return ended(in, take_vouch(in));
        case Type::look:
            return ended(in, take_look(in));
        case Type::show:
            return ended(in, take_show(in));
        case Type::read:
            return ended(in, take_read_message(in));
        case Type::say:
            return ended(in, take_say(in));
        case Type::credential:
            return ended(in, CredentialMessage{in.text()});
        case Type::refused:
            return ended(in, MemberMessage(RefusedMessage{in.text()}));
        case Type::wait:
            return ended(in, MemberMessage(WaitMessage{in.flag()}));
        case Type::round:
            return ended(in, MemberMessage(take_round(in)));
        case Type::stop:
            return ended(in, MemberMessage(take_stop(in)));
        case Type::finish:
            return ended(in, MemberMessage(FinishMessage{in.number()}));
        default:
            refuse_message("no message of a coordinator");
    }
}

}  // namespace ddp::launcher
