// Membership and leases together, in a world of hosts whose clocks drift, whose agents are killed or
// stalled, whose cables are cut and whose power goes, by seed. In no such world do workers of two
// rounds live at once (or, under a stalled agent, hold a lease), has a rank two hosts, or does a
// round differ between two members; and each has an end.
#include "base/sanitizers.hpp"
#include "launcher/hosts/lease.hpp"
#include "launcher/hosts/membership/membership.hpp"
#include "launcher/hosts/membership/simulated_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
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
constexpr auto give_up_after = 40min;
constexpr int most_restarts = 20;

struct Host {
    std::string name;
    double clock_rate = 1;
    // The machine.
    bool has_power = true;
    bool is_cut = false;  // from the network
    // The agent.
    MemberId member = 0;  // 0: no agent
    bool is_stalled = false;
    Time stalled_until{};
    std::optional<Lease> lease;
    // The workers.
    int round = 0;  // 0: none live
    RankTable table;
    bool is_stopping = false;
    std::optional<RoundMessage> waiting;  // for a lease
};

class World : testing::SimulatedWorld {
public:
    explicit World(std::uint64_t seed)
        : SimulatedWorld(seed),
          max_hosts_(static_cast<int>(random_() % 3 + 2)),
          has_node_ranks_(random_() % 2 == 0),
          membership_({.min_hosts = static_cast<int>(random_() % 2 + 1),
                       .max_hosts = max_hosts_,
                       .last_call = milliseconds(random_() % 5'000)},
                      now_) {
        hosts_.resize(random_() % 4 + 2);
        for (std::size_t i = 0; i < hosts_.size(); ++i) {
            hosts_[i].name = "h" + std::to_string(i);
            hosts_[i].clock_rate = clock_rate();
            after(up_to(2'000ms), [this, i] { start_agent(i); });
        }
        after(0ms, [this] { look_at_links(); });
        for (auto count = random_() % 8; count > 0; --count) {
            after(up_to(faults_for), [this] { do_harm(); });
        }
        after(faults_for, [this] { end_faults(); });
        after(faults_for + 20min, [this] { take(membership_.stop(15, now_)); });
    }

    // What went wrong; empty: nothing.
    std::string run() {
        const Time begin = now_;
        while (trouble_.empty() && !membership_.is_over()) {
            if (now_ - begin > give_up_after) return "no end";
            const auto wakes = membership_.next(now_);
            if (wakes && (is_empty() || *wakes <= next_event())) {
                now_ = std::max(now_, *wakes);
                take(membership_.look_at_time(now_));
            } else {
                run_event();
            }
            check();
        }
        return trouble_;
    }

    struct Counts {
        int rounds = 0, losses = 0, ends = 0;
    };
    Counts counts() const { return {membership_.round(), losses_, membership_.is_over() ? 1 : 0}; }

private:
    Time clock_of(const Host& host) const { return clock_with(host.clock_rate); }

    // Messages, in order: late by up to 50 ms, held while the host is cut, read when the agent runs,
    // lost with the connection or the agent.
    enum class Way : std::uint8_t { up, down };
    struct Stream {
        Time last{};  // when the last message arrives
        std::deque<std::function<void()>> messages;
    };
    void carry(Way way, MemberId member, std::function<void()> deliver) {
        Stream& stream = streams_[{member, way}];
        stream.last = std::max(stream.last, now_ + (index_of_.at(member) == 0 ? 0ms : up_to(50ms)));
        stream.messages.push_back(std::move(deliver));
        deliver_at(stream.last, way, member);
    }
    // Each such event takes the first message that waits, so that none overtakes another.
    void deliver_at(Time time, Way way, MemberId member) {
        at(time, [this, way, member] {
            if (!connected_.contains(member)) return;
            const Host& host = hosts_[index_of_.at(member)];
            if (host.is_cut || (way == Way::down && host.is_stalled)) {
                return deliver_at(now_ + 100ms, way, member);
            }
            Stream& stream = streams_[{member, way}];
            const auto deliver = std::move(stream.messages.front());
            stream.messages.pop_front();
            deliver();
        });
    }
    void to_coordinator(std::size_t index, std::function<void(MemberId)> deliver) {
        const MemberId member = hosts_[index].member;
        carry(Way::up, member, [member, deliver = std::move(deliver)] { deliver(member); });
    }

    // The agent ------------------------------------------------------------------------------

    void start_agent(std::size_t index) {
        Host& host = hosts_[index];
        if (!host.has_power || host.member != 0 || membership_.is_over()) return;
        if (host.is_cut) return after(1s, [this, index] { start_agent(index); });
        host.member = ++members_;
        host.is_stalled = false;
        host.lease.emplace(milliseconds{5'000});
        host.is_stopping = false;
        host.waiting.reset();
        index_of_[host.member] = index;
        connected_.insert(host.member);
        to_coordinator(index, [this, index](MemberId member) {
            HostSize size{.member = member,
                          .host = hosts_[index].name,
                          .slots = static_cast<int>(index % 3 + 1)};
            if (has_node_ranks_ && std::cmp_less(index, max_hosts_)) {
                size.node_rank = static_cast<int>(index);
            }
            take(membership_.join(size, now_));
        });
        turn(index, host.member);
    }

    // One of its loop's.
    void turn(std::size_t index, MemberId member) {
        Host& host = hosts_[index];
        if (host.member != member) return;
        after(beat_interval, [this, index, member] { turn(index, member); });
        if (host.is_stalled) return;
        const Time clock = clock_of(host);
        if (host.lease->is_over(clock) || !connected_.contains(member)) return end_agent(index);
        const auto beat = host.lease->beat(clock);
        to_coordinator(index, [this, index, beat](MemberId from) {
            membership_.heard(from, now_);
            carry(Way::down, from, [this, index, from, beat] {
                if (hosts_[index].member == from) on_answer(index, beat);
            });
        });
    }

    // As when it is killed: its workers die, and its kernel closes the connection.
    void end_agent(std::size_t index) {
        Host& host = hosts_[index];
        const MemberId member = std::exchange(host.member, 0);
        if (member == 0) return;
        host.round = 0;
        host.waiting.reset();
        if (host.has_power && !host.is_cut) {
            carry(Way::up, member, [this, member] { disconnect(member); });
        }
        if (happens(80)) after(up_to(5s), [this, index] { start_agent(index); });
    }
    void disconnect(MemberId member) {
        if (connected_.erase(member) > 0) take(membership_.closed(member, now_));
    }

    void on_message(std::size_t index, MemberId member, const MemberMessage& message) {
        Host& host = hosts_[index];
        if (host.member != member) return;
        if (const auto* round = std::get_if<RoundMessage>(&message)) {
            if (host.round != 0) trouble_ = "a round for a host on which one lives";
            host.waiting = *round;
            start_waiting(index);
        } else if (const auto* stop = std::get_if<StopRoundMessage>(&message)) {
            if (host.waiting && host.waiting->round == stop->round) {
                host.waiting.reset();
                return say_drained(index, stop->round, PartEnd::failure);
            }
            if (stop->round != host.round) return;
            host.is_stopping = true;
            const int number = host.round;
            after(up_to(500ms), [this, index, member, number] {
                drain(index, member, number, PartEnd::failure);
            });
        } else if (std::holds_alternative<RefusedMessage>(message) ||
                   std::holds_alternative<FinishMessage>(message)) {
            end_agent(index);
        }
    }

    void on_answer(std::size_t index, std::uint64_t beat) {
        hosts_[index].lease->answered(beat);
        start_waiting(index);
    }
    void start_waiting(std::size_t index) {
        Host& host = hosts_[index];
        if (!host.waiting || !host.lease->holds(clock_of(host))) return;
        const MemberId member = host.member;
        const int number = host.waiting->round;
        host.round = number;
        host.table = host.waiting->table;
        host.is_stopping = false;
        host.waiting.reset();
        const bool fails = now_ < start_ + faults_for && happens(20);
        after(up_to(20s),
              [this, index, member, number, fails] { end_part(index, member, number, fails); });
    }

    void end_part(std::size_t index, MemberId member, int round, bool fails) {
        Host& host = hosts_[index];
        if (host.member != member || host.round != round || host.is_stopping) return;
        if (host.is_stalled) {
            return after(100ms, [=, this] { end_part(index, member, round, fails); });
        }
        if (!fails) return drain(index, member, round, PartEnd::success);
        const int rank = host.table.find(member)->first_rank;
        to_coordinator(index, [this, round, rank](MemberId from) {
            take(membership_.failed(from, round, rank, now_));
        });
    }
    void drain(std::size_t index, MemberId member, int round, PartEnd end) {
        Host& host = hosts_[index];
        if (host.member != member || host.round != round) return;
        if (host.is_stalled) return after(100ms, [=, this] { drain(index, member, round, end); });
        host.round = 0;
        say_drained(index, round, end);
    }
    void say_drained(std::size_t index, int round, PartEnd end) {
        to_coordinator(index, [this, round, end](MemberId from) {
            take(membership_.drained(from, round, end, now_));
        });
    }

    // The coordinator ------------------------------------------------------------------------

    void take(const MembershipActions& actions) {
        for (const MembershipAction& action : actions) {
            if (const auto* sent = std::get_if<SendTo>(&action)) {
                give(sent->to, sent->message);
            } else if (const auto* given = std::get_if<GiveRound>(&action)) {
                for (const MemberId to : given->to) give(to, given->round);
            } else if (const auto* asks = std::get_if<AskForJudgement>(&action)) {
                after(0ms, [this, reason = asks->reason] { judge(reason); });
            }
        }
    }
    void give(MemberId to, const MemberMessage& message) {
        if (const auto* round = std::get_if<RoundMessage>(&message)) note_round(*round);
        const bool closes = std::holds_alternative<RefusedMessage>(message);
        const std::size_t index = index_of_.at(to);
        losses_ += closes ? 1 : 0;
        carry(Way::down, to, [this, index, to, message, closes] {
            on_message(index, to, message);
            if (closes) connected_.erase(to);
        });
    }
    void judge(StopReason reason) {
        if (membership_.is_over()) return;
        if (reason == StopReason::success) return take(membership_.finish(0));
        const bool goes_on =
            membership_.restarts() < most_restarts && now_ < start_ + faults_for + 20min;
        take(goes_on ? membership_.restart(up_to(1s), true, now_) : membership_.finish(1));
    }
    void note_round(const RoundMessage& round) {
        const auto [known, is_new] = rounds_.try_emplace(round.round, round);
        if (!is_new && !(known->second == round)) trouble_ = "two members have different rounds";
        if (!is_new) return;
        int next = 0;
        for (const HostRanks& host : round.table.hosts) {
            if (host.first_rank != next) trouble_ = "a rank has two hosts, or none";
            next += host.slots;
        }
        if (next != round.table.world_size) trouble_ = "the world has another size";
    }
    // What TCP tells of each connection.
    void look_at_links() {
        after(beat_interval, [this] { look_at_links(); });
        for (const MemberId member : connected_) {
            const Host& host = hosts_[index_of_.at(member)];
            if (host.has_power && !host.is_cut) membership_.acknowledged(member, now_);
        }
    }

    // Harm -----------------------------------------------------------------------------------

    void do_harm() {
        const std::size_t index = random_() % hosts_.size();
        Host& host = hosts_[index];
        const auto length = up_to(happens(50) ? 1s : 45s);
        switch (random_() % 6) {
            case 0:
                return end_agent(index);
            case 1:
                if (index == 0) return;
                host.is_cut = true;
                return after(length, [this, index] { hosts_[index].is_cut = false; });
            case 2:
                host.is_stalled = index != 0;
                return after(length, [this, index] { end_stall(index); });
            case 3:
                if (index == 0) return;
                host.has_power = false;
                host.round = 0;
                host.waiting.reset();
                host.member = 0;
                return after(length, [this, index] {
                    hosts_[index].has_power = true;
                    start_agent(index);
                });
            case 4: {  // goes in good order
                if (host.member == 0 || host.round != 0 || host.is_stalled) return;
                const MemberId member = std::exchange(host.member, 0);
                carry(Way::up, member, [this, member] {
                    connected_.erase(member);
                    take(membership_.leave(member, now_));
                });
                return after(length, [this, index] { start_agent(index); });
            }
            default:  // a connection that somebody between them resets
                disconnect(host.member);
        }
    }
    void end_stall(std::size_t index) {
        if (!std::exchange(hosts_[index].is_stalled, false)) return;
        hosts_[index].stalled_until = now_;
    }
    void end_faults() {
        for (std::size_t i = 0; i < hosts_.size(); ++i) {
            hosts_[i].has_power = true;
            hosts_[i].is_cut = false;
            end_stall(i);
            start_agent(i);
        }
    }

    void check() {
        std::set<int> alive;
        for (const Host& host : hosts_) {
            if (host.round == 0) continue;
            const auto ends = host.lease->ends();
            const bool holds = !ends || clock_of(host) < *ends;
            // After a stall the agent asks first.
            const bool asks = now_ < host.stalled_until + Lease::pause + 2 * beat_interval;
            if (holds || (!host.is_stalled && !asks)) alive.insert(host.round);
        }
        if (alive.size() > 1) trouble_ = "two rounds live at once";
    }

    const int max_hosts_;
    const bool has_node_ranks_;
    Membership membership_;
    std::vector<Host> hosts_;
    MemberId members_ = 0;
    std::map<MemberId, std::size_t> index_of_;
    std::map<std::pair<MemberId, Way>, Stream> streams_;
    std::set<MemberId> connected_;
    std::map<int, RoundMessage> rounds_;
    int losses_ = 0;
    std::string trouble_;
};

void simulate(int worlds) {
    std::mt19937_64 seeds(store_test::random_seed());
    long rounds = 0;
    long losses = 0;
    for (int i = 0; i < worlds; ++i) {
        World world(seeds());
        ASSERT_EQ(world.run(), "") << "world " << i << " of this seed";
        rounds += world.counts().rounds;
        losses += world.counts().losses;
    }
    EXPECT_GT(rounds, worlds) << "worlds in which nothing happens show nothing";
    EXPECT_GT(losses, worlds / 4);
}

// A sanitized world takes fifty times as long.
#if defined(DDP_SANITIZES_ADDRESSES) || defined(DDP_SANITIZES_THREADS)
constexpr int worlds = 500;
#else
constexpr int worlds = 10'000;
#endif

TEST(MembershipSimulation, HasNoTwoRoundsAtOnceAndAlwaysAnEnd) { simulate(worlds); }
TEST(MembershipSimulation, SoakHasNoTwoRoundsAtOnceAndAlwaysAnEnd) { simulate(1'000'000); }

}  // namespace
}  // namespace ddp::launcher
