// Of each variant of the library its own.
#include "standin_nccl/knobs.hpp"

namespace stand_in {

int library_version() { return DDP_STAND_IN_VERSION; }

}  // namespace stand_in
