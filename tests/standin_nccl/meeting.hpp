// How ranks meet in what is collective but moves no data: each tells each what it wants.
#pragma once

#include "standin_nccl/kernel.hpp"
#include "standin_nccl/region.hpp"

#include <functional>
#include <vector>

namespace stand_in {

// Tells `own` to the others of `ranks`, and shows `look` what they tell. Returns when all have
// come; false: stopped before, or `look` has said false.
bool meet(const Place& place, Meeting meeting, const std::vector<int>& ranks, const Note& own,
          const std::function<bool(int rank, const Note& note)>& look);

}  // namespace stand_in
