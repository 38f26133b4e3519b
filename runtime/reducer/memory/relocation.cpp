#include "reducer/memory/relocation.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace ddp::reducer {
namespace {

using Place = CopyStep::Place;

class Planner {
public:
    Planner(std::span<const Move> moves, std::size_t most_scratch_bytes)
        : most_scratch_bytes_(most_scratch_bytes) {
        for (const Move& move : moves) {
            if (move.from != move.to && move.bytes > 0) moves_.push_back(move);
        }
        waits_for_.resize(moves_.size());
        blockers_.resize(moves_.size());
        blocked_.resize(moves_.size());
        parked_at_.resize(moves_.size());
        has_left_.resize(moves_.size());
        find_blockers();
    }

    Relocation plan() {
        move_all_that_are_free();
        for (std::size_t i = 0; i < moves_.size(); ++i) {
            while (!has_left_[i]) {  // it waits for a circle, or is in one
                park(smallest_of_circle(i));
                move_all_that_are_free();
            }
        }
        return std::move(result_);
    }

private:
    // A move waits for all others that leave a part of its target.
    void find_blockers() {
        std::vector<std::size_t> by_from(moves_.size());
        std::iota(by_from.begin(), by_from.end(), 0U);
        std::ranges::sort(by_from, {}, [&](std::size_t i) { return moves_[i].from; });
        for (std::size_t i = 0; i < moves_.size(); ++i) {
            const Move& move = moves_[i];
            auto other = std::ranges::partition_point(by_from, [&](std::size_t j) {
                return moves_[j].from + moves_[j].bytes <= move.to;
            });
            for (; other != by_from.end() && moves_[*other].from < move.to + move.bytes; ++other) {
                if (*other == i) continue;
                blocked_[*other].push_back(i);
                waits_for_[i].push_back(*other);
                ++blockers_[i];
            }
            if (blockers_[i] == 0) free_.push_back(i);
        }
    }
    std::size_t smallest_of_circle(std::size_t start) const {
        std::vector<bool> seen(moves_.size());
        const auto next_of = [&](std::size_t i) {
            return *std::ranges::find_if(waits_for_[i], [&](auto j) { return !has_left_[j]; });
        };
        while (!seen[start]) {
            seen[start] = true;
            start = next_of(start);
        }
        std::size_t smallest = start;
        for (std::size_t i = next_of(start); i != start; i = next_of(i)) {
            if (moves_[i].bytes < moves_[smallest].bytes) smallest = i;
        }
        return smallest;
    }
    void move_all_that_are_free() {
        while (!free_.empty()) {
            const std::size_t i = free_.back();
            free_.pop_back();
            move(i);
        }
    }
    void move(std::size_t i) {
        const auto& [from, to, bytes] = moves_[i];
        if (parked_at_[i]) {
            result_.steps.push_back({Place::host, *parked_at_[i], Place::memory, to, bytes});
            return;
        }
        const std::size_t distance = from < to ? to - from : from - to;
        if (distance < bytes) {
            shift(moves_[i]);
        } else {
            result_.steps.push_back({Place::memory, from, Place::memory, to, bytes});
        }
        leave(i);
    }
    // The end first that is not written over.
    void shift(const Move& move) {
        const std::size_t most = std::min(move.bytes, most_scratch_bytes_);
        result_.scratch_bytes = std::max(result_.scratch_bytes, most);
        for (std::size_t done = 0; done < move.bytes;) {
            const std::size_t now = std::min(most, move.bytes - done);
            const std::size_t at = move.to < move.from ? done : move.bytes - done - now;
            result_.steps.push_back({Place::memory, move.from + at, Place::scratch, 0, now});
            result_.steps.push_back({Place::scratch, 0, Place::memory, move.to + at, now});
            done += now;
        }
    }
    void park(std::size_t i) {
        parked_at_[i] = result_.host_bytes;
        result_.steps.push_back(
            {Place::memory, moves_[i].from, Place::host, result_.host_bytes, moves_[i].bytes});
        result_.host_bytes += moves_[i].bytes;
        leave(i);
    }
    void leave(std::size_t i) {
        has_left_[i] = true;
        for (const std::size_t other : blocked_[i]) {
            if (--blockers_[other] == 0) free_.push_back(other);
        }
    }

    std::size_t most_scratch_bytes_;
    std::vector<Move> moves_;
    std::vector<std::vector<std::size_t>> waits_for_, blocked_;  // by move: which others
    std::vector<std::size_t> blockers_;                          // by move: those still there
    std::vector<std::optional<std::size_t>> parked_at_;
    std::vector<bool> has_left_;
    std::vector<std::size_t> free_;
    Relocation result_;
};

}  // namespace

Relocation plan_relocation(std::span<const Move> moves, std::size_t most_scratch_bytes) {
    return Planner(moves, most_scratch_bytes).plan();
}

}  // namespace ddp::reducer
