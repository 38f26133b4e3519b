// Membership, leases and succession together, in a world whose network splits, whose agents are
// killed or stalled, and whose power goes, the coordinator's too, by seed. In no such world do
// workers of two rounds live at once (or, under a stalled agent, hold a lease), and each has an end.
#include "base/sanitizers.hpp"
#include "launcher/hosts/lease.hpp"
#include "launcher/hosts/membership/membership.hpp"
#include "launcher/hosts/membership/simulated_world.hpp"
#include "launcher/hosts/membership/succession.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "support/seed.hpp"

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using Time = Membership::Time;
using std::chrono::milliseconds;

constexpr auto beat_interval = 250ms;
constexpr auto faults_for = 60s;
constexpr auto patience = 40min;

struct Stream {
    Time last{};  // when the last message arrives
    std::deque<std::function<void()>> messages;
};

// A connection of a member, to the coordinator on a host.
struct Connection {
    std::size_t from = 0;
    std::size_t to = 0;
    int from_agent = 0;
    int to_agent = 0;
    bool is_open_up = true;    // the member's end
    bool is_open_down = true;  // the coordinator's
    MemberId member = 0;       // its number, once it has joined
    Stream up = {}, down = {};
};
using Link = Connection*;  // the world's

// Of a round: who gave it out.
using Origin = std::pair<int, int>;  // the coordinating agent, the round

struct Host {
    std::string name;
    double clock_rate = 1;
    bool has_power = true;
    int network = 0;  // hosts with the same number reach each other
    bool is_stalled = false;
    Time stalled_until{};
    int agent = 0;  // a number of its own each time; 0: none
    // As a member.
    Link link = nullptr;
    bool is_welcome = false;
    Time answers_by{};
    std::optional<Lease> lease;
    std::int64_t echo_ns = 0;
    std::optional<std::pair<RoundMessage, Origin>> waiting;
    std::optional<Succession> succession;
    Time next_try{};
    // What it was in last, under which number, and whether its workers live.
    RoundMessage last;
    MemberId last_member = 0;
    Origin origin{};
    bool has_workers = false;
    bool is_stopping = false;
    // As the coordinator.
    std::unique_ptr<Membership> coordinator;
    std::map<MemberId, Link> members;
    MemberId last_id = 0;
    MemberId own_id = 0;
};

class World : testing::SimulatedWorld {
public:
    explicit World(std::uint64_t seed) : SimulatedWorld(seed) {
        hosts_.resize(random_() % 3 + 3);
        const int count = static_cast<int>(hosts_.size());
        rules_.min_hosts = static_cast<int>(random_() % 2) + 1;
        rules_.max_hosts = happens(70) ? count : count - 1;
        if (happens(25)) rules_.min_hosts = rules_.max_hosts;  // static
        rules_.last_call = up_to(2s);
        rules_.join_timeout = 60s;
        rules_.has_successors = true;
        for (std::size_t i = 0; i < hosts_.size(); ++i) {
            hosts_[i].name = "h" + std::to_string(i);
            hosts_[i].clock_rate = clock_rate();
            after(i == 0 ? 0ms : up_to(2s), [this, i] { start_agent(i, i == 0); });
        }
        for (auto harms = random_() % 6 + 1; harms > 0; --harms) {
            after(up_to(faults_for), [this] { do_harm(); });
        }
        after(faults_for, [this] { end_faults(); });
    }

    std::string run() {
        while (trouble_.empty() && !is_empty()) {
            if (now_ - start_ > patience) return "no end";
            run_event();
            check();
            if (now_ > start_ + 5s && is_over()) break;
        }
        return trouble_;
    }

    struct Counts {
        int rounds = 0, successions = 0;
    };
    Counts counts() const { return {rounds_, successions_}; }

private:
    Time clock_of(const Host& host) const { return clock_with(host.clock_rate); }
    static std::int64_t ns_of(Time time) { return time.time_since_epoch().count(); }
    bool is_over() const {
        return std::ranges::none_of(hosts_, [](const Host& host) { return host.agent != 0; });
    }
    bool reaches(std::size_t a, std::size_t b) const {
        return hosts_[a].has_power && hosts_[b].has_power && hosts_[a].network == hosts_[b].network;
    }

    // Messages ---------------------------------------------------------------------------------

    // In order, late by up to 50 ms, held while the hosts do not reach each other or the receiver
    // is stalled, lost with the agent of either end.
    void carry(Link link, bool up, std::function<void()> deliver) {
        Stream& stream = up ? link->up : link->down;
        stream.last = std::max(stream.last, now_ + (link->from == link->to ? 0ms : up_to(50ms)));
        stream.messages.push_back(std::move(deliver));
        deliver_at(stream.last, link, up);
    }
    // Each such event takes the first message that waits, so that none overtakes another.
    void deliver_at(Time time, Link link, bool up) {
        at(time, [this, link, up] {
            const Host& receiver = hosts_[up ? link->to : link->from];
            const bool is_open = up ? link->is_open_down : link->is_open_up;
            const int agent = up ? link->to_agent : link->from_agent;
            if (receiver.agent != agent || !is_open) return;
            if (!reaches(link->from, link->to) || receiver.is_stalled) {
                return deliver_at(now_ + 100ms, link, up);
            }
            Stream& stream = up ? link->up : link->down;
            const auto deliver = std::move(stream.messages.front());
            stream.messages.pop_front();
            deliver();
        });
    }

    // The agent as a member --------------------------------------------------------------------

    void start_agent(std::size_t index, bool coordinates) {
        Host& host = hosts_[index];
        if (!host.has_power || host.agent != 0) return;
        const bool had_power = host.has_power;
        Host fresh;
        fresh.name = host.name;
        fresh.clock_rate = host.clock_rate;
        fresh.has_power = had_power;
        fresh.network = host.network;
        host = std::move(fresh);
        host.agent = ++agents_;
        host.lease.emplace(rules_.node_timeout);
        if (coordinates) {
            host.coordinator = std::make_unique<Membership>(rules_, clock_of(host));
            connect(index, index);
            watch(index, host.agent);
        }
        const int agent = host.agent;
        after(150s, [this, index, agent] {
            Host& late = hosts_[index];
            if (late.agent == agent && !late.is_welcome) end_agent(index);
        });
        turn(index, agent);
    }

    void end_agent(std::size_t index) {
        Host& host = hosts_[index];
        if (host.agent == 0) return;
        disconnect(index);
        stop_serving(index);
        host.agent = 0;
        host.has_workers = false;
        host.waiting.reset();
        host.succession.reset();
        if (happens(60) && now_ < start_ + faults_for) {
            after(up_to(5s), [this, index] { start_agent(index, false); });
        }
    }

    void connect(std::size_t index, std::size_t to) {
        Host& host = hosts_[index];
        host.link = &connections_.emplace_back(Connection{
            .from = index, .to = to, .from_agent = host.agent, .to_agent = hosts_[to].agent});
        host.is_welcome = false;
        host.answers_by = now_ + 5s;
        host.waiting.reset();
        HostSize size{.host = host.name,
                      .address = std::to_string(index),
                      .slots = static_cast<int>(index % 3 + 1),
                      .port = 1};
        if (host.succession) {
            size.was_in_round = host.succession->last().round;
            size.was_member = host.succession->own();
        }
        carry(host.link, true, [this, link = host.link, size] { take_join(link, size); });
        send_beat(index);
    }

    void disconnect(std::size_t index) {
        Host& host = hosts_[index];
        const Link link = std::exchange(host.link, nullptr);
        host.is_welcome = false;
        if (!link) return;
        link->is_open_up = false;
        if (host.has_power) carry(link, true, [this, link] { lose_member(link); });
    }

    void turn(std::size_t index, int agent) {
        Host& host = hosts_[index];
        if (host.agent != agent) return;
        after(beat_interval, [this, index, agent] { turn(index, agent); });
        if (host.is_stalled) return;
        const Time clock = clock_of(host);
        if (host.link && host.is_welcome && host.lease->is_over(clock))
            return lose_coordinator(index);
        if (host.succession && now_over(index)) return end_agent(index);
        if (host.link && !host.is_welcome && now_ >= host.answers_by) {
            disconnect(index);
            if (host.succession) host.succession->pass();
        }
        if (host.succession) take_over(index);
        if (!host.link || (host.coordinator && host.link->to == index && host.succession)) {
            look_for_coordinator(index);
        }
        if (host.link) send_beat(index);
    }
    bool now_over(std::size_t index) const {
        const Host& host = hosts_[index];
        return !host.is_welcome && clock_of(host) >= host.succession->ends();
    }

    void send_beat(std::size_t index) {
        Host& host = hosts_[index];
        const auto beat = host.lease->beat(clock_of(host));
        const std::int64_t echo = host.echo_ns;
        carry(host.link, true,
              [this, link = host.link, beat, echo] { take_beat(link, beat, echo); });
    }

    // Its workers have no right to live any more.
    void lose_coordinator(std::size_t index) {
        Host& host = hosts_[index];
        const bool was_coordinator = host.coordinator != nullptr;
        host.has_workers = false;
        disconnect(index);
        if (was_coordinator || host.last.round == 0 || !Succession::is_possible(host.last)) {
            return end_agent(index);
        }
        if (!host.succession) {
            host.succession.emplace(host.last, host.last_member, rules_, clock_of(host));
        } else {
            host.succession->pass();
        }
        host.lease.emplace(rules_.node_timeout);
        host.echo_ns = 0;
        host.is_welcome = false;
    }

    // By address, of those that were told; a fresh agent tries all endpoints.
    void look_for_coordinator(std::size_t index) {
        Host& host = hosts_[index];
        std::size_t to = random_() % hosts_.size();
        if (host.succession) {
            const HostRanks* next = host.succession->next();
            if (next == nullptr) return;
            to = static_cast<std::size_t>(std::stoi(next->address));
        }
        const bool listens = hosts_[to].agent != 0 && hosts_[to].coordinator != nullptr;
        if (to == index || !reaches(index, to) || !listens) {
            if (host.succession) host.succession->pass();
            return;
        }
        if (host.coordinator) {  // somebody before it takes over
            disconnect(index);
            stop_serving(index);
        }
        connect(index, to);
    }

    void take_over(std::size_t index) {
        Host& host = hosts_[index];
        if (host.coordinator || host.link || !host.succession->serves(clock_of(host))) return;
        RoundMessage last = host.succession->last();
        for (const HostRanks& one : last.table.hosts)
            host.last_id = std::max(host.last_id, one.member);
        host.coordinator = std::make_unique<Membership>(rules_, std::move(last), clock_of(host));
        ++successions_;
        connect(index, index);
        watch(index, host.agent);
    }
    void step_down(std::size_t index) {
        Host& host = hosts_[index];
        disconnect(index);
        stop_serving(index);
        if (host.succession) host.succession->renounce();
    }

    void take_message(Link link, const MemberMessage& message, Origin origin) {
        const std::size_t index = link->from;
        Host& host = hosts_[index];
        if (host.link != link) return;
        if (std::holds_alternative<WaitMessage>(message)) {
            host.is_welcome = true;
            host.lease->count_from(clock_of(host));
        } else if (const auto* round = std::get_if<RoundMessage>(&message)) {
            if (host.has_workers) trouble_ = "a round for a host on which one lives";
            host.waiting = {*round, origin};
            start_waiting(index);
        } else if (const auto* stop = std::get_if<StopRoundMessage>(&message)) {
            if (host.waiting && host.waiting->first.round == stop->round) {
                host.waiting.reset();
                return say_drained(index, stop->round, PartEnd::failure);
            }
            if (!host.has_workers || stop->round != host.last.round) return;
            host.is_stopping = true;
            after(up_to(500ms), [this, index, agent = host.agent, of = host.origin] {
                drain(index, agent, of, PartEnd::failure);
            });
        } else if (std::holds_alternative<FinishMessage>(message) ||
                   std::holds_alternative<RefusedMessage>(message)) {
            end_agent(index);
        }
    }

    void start_waiting(std::size_t index) {
        Host& host = hosts_[index];
        if (!host.waiting || !host.lease->holds(clock_of(host))) return;
        host.last = host.waiting->first;
        host.origin = host.waiting->second;
        host.last_member = host.link->member;
        host.waiting.reset();
        host.succession.reset();
        host.has_workers = true;
        host.is_stopping = false;
        carry(host.link, true, [this, link = host.link, round = host.last.round] {
            Membership* one = hosts_[link->to].coordinator.get();
            if (one != nullptr) one->started(link->member, round);
        });
        const bool fails = now_ < start_ + faults_for && happens(20);
        const auto lasts = now_ < start_ + faults_for ? up_to(30s) : up_to(5s);
        after(lasts, [this, index, agent = host.agent, of = host.origin, fails] {
            end_part(index, agent, of, fails);
        });
    }
    void end_part(std::size_t index, int agent, Origin of, bool fails) {
        Host& host = hosts_[index];
        if (host.agent != agent || host.origin != of || !host.has_workers || host.is_stopping)
            return;
        if (host.is_stalled) return after(100ms, [=, this] { end_part(index, agent, of, fails); });
        if (!fails) return drain(index, agent, of, PartEnd::success);
        const int rank = host.last.table.find(host.last_member)->first_rank;
        carry(host.link, true, [this, link = host.link, round = of.second, rank] {
            decide(link->to, [&](Membership& one, Time now) {
                return one.failed(link->member, round, rank, now);
            });
        });
    }
    void drain(std::size_t index, int agent, Origin of, PartEnd end) {
        Host& host = hosts_[index];
        if (host.agent != agent || host.origin != of || !host.has_workers) return;
        if (host.is_stalled) return after(100ms, [=, this] { drain(index, agent, of, end); });
        host.has_workers = false;
        say_drained(index, of.second, end);
    }
    void say_drained(std::size_t index, int round, PartEnd end) {
        carry(hosts_[index].link, true, [this, link = hosts_[index].link, round, end] {
            decide(link->to, [&](Membership& one, Time now) {
                return one.drained(link->member, round, end, now);
            });
        });
    }

    // The coordinator --------------------------------------------------------------------------

    using Decision = std::function<MembershipActions(Membership&, Time)>;
    void decide(std::size_t index, const Decision& decision) {
        Host& host = hosts_[index];
        if (host.coordinator) carry_out(index, decision(*host.coordinator, clock_of(host)));
    }
    // One of its loop's turns.
    void watch(std::size_t index, int agent) {
        Host& host = hosts_[index];
        if (host.agent != agent || !host.coordinator) return;
        after(50ms, [this, index, agent, of = host.coordinator.get()] {
            if (hosts_[index].coordinator.get() == of) watch(index, agent);
        });
        if (host.is_stalled) return;
        const Time now = clock_of(host);
        // What TCP tells; after a stall, nothing that is old.
        for (const auto& [id, link] : host.members) {
            if (reaches(link->from, index)) host.coordinator->acknowledged(id, now);
            if (now_ < host.stalled_until + 50ms) host.coordinator->heard(id, now);
        }
        decide(index, [](Membership& one, Time at) { return one.look_at_time(at); });
    }

    void take_join(Link link, HostSize size) {
        Host& host = hosts_[link->to];
        if (!host.coordinator || host.coordinator->is_over()) return lose_link(link);
        size.member = link->member = ++host.last_id;
        host.members[size.member] = link;
        if (link->from == link->to) host.own_id = size.member;
        decide(link->to, [&](Membership& one, Time now) { return one.join(size, now); });
        if (!host.coordinator || !host.coordinator->is_outdated()) return;
        after(0ms, [this, index = link->to, agent = host.agent] {
            if (hosts_[index].agent == agent) step_down(index);
        });
    }
    void take_beat(Link link, std::uint64_t beat, std::int64_t echo_ns) {
        Host& host = hosts_[link->to];
        if (!host.coordinator || link->member == 0) return;
        const Time now = clock_of(host);
        host.coordinator->heard(link->member, now);
        if (echo_ns != 0) host.coordinator->proven(link->member, Time(Time::duration(echo_ns)));
        const bool grants = host.coordinator->grants(now);
        carry(link, false, [this, link, grants, beat, sent = ns_of(now)] {
            Host& member = hosts_[link->from];
            if (member.link != link) return;
            if (grants) member.lease->answered(beat);
            member.echo_ns = sent;
            start_waiting(link->from);
        });
    }
    void lose_member(Link link) {
        link->is_open_down = false;
        hosts_[link->to].members.erase(link->member);
        decide(link->to, [&](Membership& one, Time now) { return one.closed(link->member, now); });
    }
    // The coordinator's end closes.
    void lose_link(Link link) {
        link->is_open_down = false;
        if (!hosts_[link->to].has_power) return;
        carry(link, false, [this, link] {
            if (hosts_[link->from].link == link) lose_coordinator(link->from);
        });
    }
    void stop_serving(std::size_t index) {
        Host& host = hosts_[index];
        for (const auto& [id, link] : std::exchange(host.members, {})) lose_link(link);
        host.coordinator.reset();
    }

    void carry_out(std::size_t index, const MembershipActions& actions) {
        for (const MembershipAction& action : actions) {
            Host& host = hosts_[index];
            if (const auto* sent = std::get_if<SendTo>(&action)) {
                give(index, sent->to, sent->message);
            } else if (const auto* given = std::get_if<GiveRound>(&action)) {
                RoundMessage round = given->round;
                round.coordinator = host.own_id;
                check_round(round);
                for (const MemberId to : given->to) give(index, to, round);
            } else if (const auto* asks = std::get_if<AskForJudgement>(&action)) {
                after(0ms, [this, index, agent = host.agent, reason = asks->reason] {
                    if (hosts_[index].agent == agent) judge(index, reason);
                });
            }
        }
    }
    void give(std::size_t index, MemberId to, const MemberMessage& message) {
        Host& host = hosts_[index];
        const auto found = host.members.find(to);
        if (found == host.members.end()) return;
        const Link link = found->second;
        const auto* round = std::get_if<RoundMessage>(&message);
        const Origin origin{host.agent, round != nullptr ? round->round : 0};
        carry(link, false, [this, link, message, origin] { take_message(link, message, origin); });
        if (std::holds_alternative<RefusedMessage>(message)) host.members.erase(found);
    }
    void judge(std::size_t index, StopReason reason) {
        decide(index, [&](Membership& one, Time now) {
            if (reason == StopReason::success) return one.finish(0);
            const bool goes_on = one.restarts() < 20;
            return goes_on ? one.restart(up_to(1s), true, now) : one.finish(1);
        });
    }
    void check_round(const RoundMessage& round) {
        ++rounds_;
        int next = 0;
        for (const HostRanks& host : round.table.hosts) {
            if (host.first_rank != next) trouble_ = "a rank has two hosts, or none";
            next += host.slots;
        }
        if (next != round.table.world_size) trouble_ = "the world has another size";
    }

    // Harm -------------------------------------------------------------------------------------

    void do_harm() {
        const std::size_t index = happens(40) ? 0 : random_() % hosts_.size();
        Host& host = hosts_[index];
        const auto length = up_to(happens(40) ? 1s : 45s);
        switch (random_() % 5) {
            case 0:
                return end_agent(index);
            case 1:  // the network splits
                for (Host& one : hosts_) one.network = static_cast<int>(random_() % 2);
                return after(length, [this] {
                    for (Host& one : hosts_) one.network = 0;
                });
            case 2:
                host.is_stalled = true;
                return after(length, [this, index] { end_stall(index); });
            case 3:
                host.has_power = false;
                host.agent = 0;
                host.has_workers = false;
                host.link = nullptr;
                host.coordinator.reset();
                host.members.clear();
                host.succession.reset();
                host.waiting.reset();
                return after(length, [this, index] {
                    hosts_[index].has_power = true;
                    if (happens(60)) start_agent(index, false);
                });
            default:  // one host is cut off
                host.network = static_cast<int>(index) + 1;
                return after(length, [this, index] { hosts_[index].network = 0; });
        }
    }
    void end_stall(std::size_t index) {
        if (std::exchange(hosts_[index].is_stalled, false)) hosts_[index].stalled_until = now_;
    }
    void end_faults() {
        for (std::size_t i = 0; i < hosts_.size(); ++i) {
            hosts_[i].has_power = true;
            hosts_[i].network = 0;
            end_stall(i);
        }
    }

    void check() {
        std::set<Origin> alive;
        for (const Host& host : hosts_) {
            if (!host.has_workers) continue;
            const auto ends = host.lease->ends();
            const bool holds = !ends || clock_of(host) < *ends;
            // After a stall the agent asks first.
            const bool asks = now_ < host.stalled_until + Lease::pause + 2 * beat_interval;
            if (holds || (!host.is_stalled && !asks)) alive.insert(host.origin);
        }
        if (alive.size() > 1) trouble_ = "two rounds live at once";
    }

    MembershipRules rules_;
    std::vector<Host> hosts_;
    std::deque<Connection> connections_;
    int agents_ = 0;
    int rounds_ = 0;
    int successions_ = 0;
    std::string trouble_;
};

void simulate(int worlds) {
    std::mt19937_64 seeds(store_test::random_seed());
    long rounds = 0;
    long successions = 0;
    for (int i = 0; i < worlds; ++i) {
        World world(seeds());
        ASSERT_EQ(world.run(), "") << "world " << i << " of this seed";
        rounds += world.counts().rounds;
        successions += world.counts().successions;
    }
    EXPECT_GT(rounds, 2 * worlds) << "worlds in which nothing happens show nothing";
    EXPECT_GT(successions, worlds / 4);
}

// A sanitized world takes fifty times as long.
#if defined(DDP_SANITIZES_ADDRESSES) || defined(DDP_SANITIZES_THREADS)
constexpr int worlds = 100;
#else
constexpr int worlds = 2'000;
#endif

TEST(SuccessionSimulation, HasNoTwoRoundsAtOnceAndAlwaysAnEnd) { simulate(worlds); }
TEST(SuccessionSimulation, SoakHasNoTwoRoundsAtOnceAndAlwaysAnEnd) { simulate(1'000'000); }

}  // namespace
}  // namespace ddp::launcher
