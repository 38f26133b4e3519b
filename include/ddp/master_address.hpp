// Where the ranks of a job meet: MASTER_ADDR and MASTER_PORT.
#pragma once

#include <cstdint>
#include <string>

namespace ddp {

struct MasterAddress {
    std::string host;
    std::uint16_t port = 0;
};

}  // namespace ddp
