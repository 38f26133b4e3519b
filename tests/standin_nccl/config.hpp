// What a caller's ncclConfig_t says, as a library of the VERSION that is asked for reads it.
#pragma once

#include <nccl.h>

#include <optional>

namespace stand_in {

// Of what a communicator is made with, that which the stand-in acts on.
struct Config {
    bool blocking = true;
    bool split_shares = false;   // its children by Split share its resources
    bool shrink_shares = false;  // those by Shrink, when it is not to abort
};

// What a rank brings to a communicator.
struct Seat {
    int rank;
    int ranks;
    int device;
    Config config;
};

// Null: as if all was undefined. Nothing where NCCL says ncclInvalidArgument; ncclGetLastError says
// why.
std::optional<Config> read_config(const ncclConfig_t* config);

}  // namespace stand_in
