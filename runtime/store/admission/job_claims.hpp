// Which job a store serves, and which process is which rank of it: so that two jobs that were given
// one port do not mix. Each rank says who it is when it connects (JOIN in protocol.md). Pure
// bookkeeping. Invariant: a rank has at most one process at a time, all ranks name one job and one
// world size.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::store {

// What a process says of itself.
struct RankClaim {
    std::string job = {};  // its name; empty: it has none
    int attempt = 0;       // at the job: how often it was restarted before
    int world_size = 1;
    int rank = 0;
    std::string host = {};      // what it calls itself
    std::string machine = {};   // tells hosts, and containers with pids of their own, apart
    std::uint64_t process = 0;  // random, the same in all claims of one process
    std::int64_t pid = 0;
    // Of its parent and the parent's parent, "pid@start"; empty when that says nothing.
    std::string parent = {};
    std::string grandparent = {};
    std::int64_t session = 0;
    bool by_mpi = false;       // started by an MPI launcher
    std::string program = {};  // for the message

    bool operator==(const RankClaim&) const = default;
};

// As lines "name value". Nothing when the text is not such a claim; numbers are checked, texts are
// cut and made printable.
std::string encode_claim(const RankClaim& claim);
std::optional<RankClaim> decode_claim(std::string_view text);

// With what this process is added to job, attempt, world size, rank and by_mpi. Parents are looked
// for only when the job has no name.
RankClaim claim_of_this_process(RankClaim claim);

class JobClaims {
public:
    using ClientId = std::uint64_t;

    JobClaims() = default;
    // `owner`: of the job whose store this is: its name, attempt, world size and, if it is a rank
    // (process not 0), that.
    explicit JobClaims(RankClaim owner);

    // Nothing when connection `client` is that rank from now on; else why not: one line that names
    // both sides.
    std::optional<std::string> join(ClientId client, const RankClaim& claim);
    // The connection is gone; a rank whose last one it was is free.
    void leave(ClientId client);
    // Another attempt at the same job, maybe with another world size: no rank is claimed.
    void start_attempt(int attempt, std::optional<int> world_size = {});
    // The connections of the process that holds this rank.
    std::vector<ClientId> connections_of(int rank) const;
    // How many other processes were this rank, one after the other, in this attempt before the one
    // that joined last: 0 for a job's first program, 1 for the second. Always 0 in a store whose
    // owner is not known beforehand.
    int program_of(int rank) const;
    // "rank 3 (pid 4711 on n1)"; empty when it has not joined.
    std::string describe(ClientId client) const;

private:
    struct Holder {
        RankClaim claim;
        int connections = 0;
    };
    struct Program {
        std::uint64_t process = 0;
        int number = 0;
    };
    std::optional<std::string> objection(const RankClaim& claim) const;
    void count_program(const RankClaim& claim);

    std::optional<RankClaim> owner_;  // nothing: the first who joins
    bool owner_is_rank_ = false;
    std::map<int, Holder> holders_;
    std::map<ClientId, int> rank_of_;
    bool counts_programs_ = false;     // the owner's world size bounds the map
    std::map<int, Program> programs_;  // by rank: its last process in this attempt
};

}  // namespace ddp::store
