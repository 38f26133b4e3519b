// Jobs without a name (ranks started by hand) are told apart by who started them, on one host: see
// are_kin().
#include "store/admission/job_claims.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <vector>

#include "base/net/socket.hpp"
#include "base/printable.hpp"
#include "base/process/process_tree.hpp"
#include "base/random.hpp"

namespace ddp::store {
namespace {

constexpr std::size_t longest_text = 256;
constexpr int most_lines = 16;

std::string clean(std::string_view text) { return base::printable(text, longest_text); }

template <class Number>
bool read_number(std::string_view text, Number low, Number high, Number& number) {
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, number);
    return parsed.ec == std::errc{} && parsed.ptr == end && number >= low && number <= high;
}

// Fills one field. False: there is none of that name, or the value is wrong.
bool read_field(std::string_view name, std::string_view value, RankClaim& claim) {
    constexpr int most = std::numeric_limits<int>::max();
    constexpr auto most_pids = std::numeric_limits<std::int64_t>::max();
    const auto text = [&](std::string& field) {
        field = clean(value);
        return true;
    };
    if (name == "job") return text(claim.job);
    if (name == "attempt") return read_number(value, 0, most, claim.attempt);
    if (name == "world_size") return read_number(value, 1, most, claim.world_size);
    if (name == "rank") return read_number(value, 0, most, claim.rank);
    if (name == "host") return text(claim.host);
    if (name == "machine") return text(claim.machine);
    if (name == "process") {
        return read_number(value, std::uint64_t{1}, ~std::uint64_t{0}, claim.process);
    }
    if (name == "pid") return read_number(value, std::int64_t{1}, most_pids, claim.pid);
    if (name == "parent") return text(claim.parent);
    if (name == "grandparent") return text(claim.grandparent);
    if (name == "session") return read_number(value, std::int64_t{0}, most_pids, claim.session);
    if (name == "by_mpi") return (claim.by_mpi = value == "1") || value == "0";
    if (name == "program") return text(claim.program);
    return false;
}

// Whether the same program seems to have started both. Unknown is yes: another host, a container.
// Of an orphan the session counts. One of them may stand below a wrapper or a debugger; under an
// MPI launcher both may.
bool are_kin(const RankClaim& a, const RankClaim& b) {
    if (a.machine != b.machine || a.machine.empty()) return true;
    if (a.parent.empty() || b.parent.empty()) {
        return a.session == b.session || a.parent == b.parent;
    }
    if (a.parent == b.parent || a.parent == b.grandparent || a.grandparent == b.parent) return true;
    return a.by_mpi && b.by_mpi && !a.grandparent.empty() && a.grandparent == b.grandparent;
}

std::string name_of_job(const RankClaim& claim) {
    return claim.job.empty() ? "a job without a name" : "job " + claim.job;
}

std::string name_of_process(const RankClaim& claim) {
    return "pid " + std::to_string(claim.pid) + " on " + claim.host +
           (claim.program.empty() ? "" : ", " + claim.program);
}

std::string whole_name(const RankClaim& claim) {
    return "rank " + std::to_string(claim.rank) + " of " + std::to_string(claim.world_size) +
           " of " + name_of_job(claim) + " (" + name_of_process(claim) + ")";
}

// Empty for a process whose parent has ended: whoever adopted it has not started it.
std::string starter_of(pid_t child) {
    const auto stat = base::stat_of(child);
    if (!stat || stat->parent <= 1) return {};
    const auto parent = base::stat_of(stat->parent);
    const bool leads_session = stat->session == child;
    if (!parent || (!leads_session && parent->session != stat->session)) return {};
    return std::to_string(stat->parent) + "@" + std::to_string(parent->started);
}

std::string machine() {
    std::array<char, 64> pids{};
    const ssize_t size = ::readlink("/proc/self/ns/pid", pids.data(), pids.size());
    if (size <= 0) return {};
    std::string boot = base::read_small_file("/proc/sys/kernel/random/boot_id");
    return boot.substr(0, boot.find('\n')) + " " +
           std::string(pids.data(), static_cast<std::size_t>(size));
}

// A number that a forked child does not share.
std::uint64_t number_of_this_process() {
    static std::uint64_t number = 0;
    static pid_t owner = 0;
    if (owner != ::getpid()) {
        owner = ::getpid();
        number = base::random_bits() | 1;
    }
    return number;
}

}  // namespace

std::string encode_claim(const RankClaim& claim) {
    const std::array<std::pair<const char*, std::string>, 13> fields{{
        {"job", claim.job},
        {"attempt", std::to_string(claim.attempt)},
        {"world_size", std::to_string(claim.world_size)},
        {"rank", std::to_string(claim.rank)},
        {"host", claim.host},
        {"machine", claim.machine},
        {"process", std::to_string(claim.process)},
        {"pid", std::to_string(claim.pid)},
        {"parent", claim.parent},
        {"grandparent", claim.grandparent},
        {"session", std::to_string(claim.session)},
        {"by_mpi", claim.by_mpi ? "1" : "0"},
        {"program", claim.program},
    }};
    std::string text;
    for (const auto& [name, value] : fields) text += std::string(name) + " " + clean(value) + "\n";
    return text;
}

std::optional<RankClaim> decode_claim(std::string_view text) {
    RankClaim claim;
    for (int line = 0; !text.empty(); ++line) {
        const std::size_t end = text.find('\n');
        const std::size_t blank = text.find(' ');
        if (line == most_lines || end == text.npos || blank > end) return std::nullopt;
        if (!read_field(text.substr(0, blank), text.substr(blank + 1, end - blank - 1), claim)) {
            return std::nullopt;
        }
        text.remove_prefix(end + 1);
    }
    if (claim.rank >= claim.world_size || claim.process == 0 || claim.pid == 0) return std::nullopt;
    return claim;
}

RankClaim claim_of_this_process(RankClaim claim) {
    claim.host = base::host_name();
    claim.process = number_of_this_process();
    claim.pid = ::getpid();
    claim.session = ::getsid(0);
    std::string program = base::read_small_file("/proc/self/cmdline");
    std::replace(program.begin(), program.end(), '\0', ' ');
    if (program.ends_with(' ')) program.pop_back();
    claim.program = clean(program).substr(0, 80);
    if (!claim.job.empty()) return claim;
    claim.machine = machine();
    claim.parent = starter_of(::getpid());
    if (!claim.parent.empty()) claim.grandparent = starter_of(::getppid());
    return claim;
}

JobClaims::JobClaims(RankClaim owner)
    : owner_(std::move(owner)), owner_is_rank_(owner_->process != 0), counts_programs_(true) {
    owner_->job = clean(owner_->job);                           // as it arrives from the ranks
    if (owner_is_rank_) holders_[owner_->rank] = {*owner_, 1};  // for as long as it serves
}

std::optional<std::string> JobClaims::join(ClientId client, const RankClaim& claim) {
    if (rank_of_.contains(client)) return "this connection has joined before";
    if (auto why = objection(claim)) return why;
    if (!owner_) owner_ = claim;
    Holder& holder = holders_[claim.rank];
    holder.claim = claim;
    ++holder.connections;
    rank_of_[client] = claim.rank;
    if (counts_programs_) count_program(claim);
    return std::nullopt;
}

void JobClaims::count_program(const RankClaim& claim) {
    const auto [program, is_first] = programs_.try_emplace(claim.rank, Program{claim.process, 0});
    if (is_first || program->second.process == claim.process) return;
    program->second = {claim.process, program->second.number + 1};
}

int JobClaims::program_of(int rank) const {
    const auto program = programs_.find(rank);
    return program == programs_.end() ? 0 : program->second.number;
}

std::optional<std::string> JobClaims::objection(const RankClaim& claim) const {
    if (!owner_) return std::nullopt;
    const RankClaim& owner = *owner_;
    const std::string sides = whole_name(claim) + " met the store of " +
                              (owner.process != 0 ? whole_name(owner) : name_of_job(owner));
    const std::string advice = "; give each job a MASTER_PORT of its own";
    if (claim.job != owner.job) return sides + ": that is another job" + advice;
    if (claim.world_size != owner.world_size) {
        return sides + ": that is a world of " + std::to_string(owner.world_size) + advice +
               ", and all ranks of one the same world size";
    }
    if (claim.attempt != owner.attempt) {
        return "this process belongs to attempt " + std::to_string(claim.attempt) +
               " of the job, but attempt " + std::to_string(owner.attempt) +
               " is served; it was left behind by a restart";
    }
    const auto held = holders_.find(claim.rank);
    if (held != holders_.end() && held->second.claim.process != claim.process) {
        return sides + ", where rank " + std::to_string(claim.rank) + " is " +
               name_of_process(held->second.claim) +
               ", which is still connected; is RANK set twice, or do two jobs share the port? "
               "Then give each a MASTER_PORT of its own";
    }
    if (claim.job.empty() && owner.process != 0 && !are_kin(claim, owner)) {
        return sides +
               ": who started the one has not started the other, so that this may be "
               "another job" +
               advice +
               "; if it is the same, set TORCHELASTIC_RUN_ID to one text of your choice for all "
               "its ranks";
    }
    return std::nullopt;
}

void JobClaims::leave(ClientId client) {
    const auto left = rank_of_.extract(client);
    if (left.empty()) return;
    const auto holder = holders_.find(left.mapped());
    if (--holder->second.connections == 0) holders_.erase(holder);
}

void JobClaims::start_attempt(int attempt, std::optional<int> world_size) {
    holders_.clear();
    rank_of_.clear();
    programs_.clear();
    if (owner_) owner_->attempt = attempt;
    if (owner_ && world_size) owner_->world_size = *world_size;
    if (owner_is_rank_) holders_[owner_->rank] = {*owner_, 1};
}

std::vector<JobClaims::ClientId> JobClaims::connections_of(int rank) const {
    std::vector<ClientId> connections;
    for (const auto& [client, its_rank] : rank_of_) {
        if (its_rank == rank) connections.push_back(client);
    }
    return connections;
}

std::string JobClaims::describe(ClientId client) const {
    const auto rank = rank_of_.find(client);
    if (rank == rank_of_.end()) return {};
    const RankClaim& claim = holders_.at(rank->second).claim;
    return "rank " + std::to_string(claim.rank) + " (" + name_of_process(claim) + ")";
}

}  // namespace ddp::store
