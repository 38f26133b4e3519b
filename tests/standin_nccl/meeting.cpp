#include "standin_nccl/meeting.hpp"

#include <cstddef>

namespace stand_in {

bool meet(const Place& place, Meeting meeting, const std::vector<int>& ranks, const Note& own,
          const std::function<bool(int rank, const Note& note)>& look) {
    const auto box = [&](int from, int to) -> NoteBox& {
        return place.region->notes[static_cast<std::size_t>(meeting)]
                                  [static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
    };
    for (const int rank : ranks) {
        if (rank == place.rank) continue;
        NoteBox& mine = box(place.rank, rank);
        if (!place.wait_until([&] { return mine.taken == mine.written; })) return false;
        mine.note = own;
        ++mine.written;
    }
    for (const int rank : ranks) {
        if (rank == place.rank) continue;
        NoteBox& other = box(rank, place.rank);
        if (!place.wait_until([&] { return other.written != other.taken; })) return false;
        if (!look(rank, other.note)) return false;
        ++other.taken;
    }
    return true;
}

}  // namespace stand_in
